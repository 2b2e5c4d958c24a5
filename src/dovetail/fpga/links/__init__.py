"""Links between FPGAs: cells with checksum, sequence and credits; boards of a plan joined by them, and their simulation."""
