"""Many equal FPGAs: relaxation, symmetry, placement."""
