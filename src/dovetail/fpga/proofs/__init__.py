"""Formal proofs that generated Verilog does what the integers say, for every input and not for samples."""
