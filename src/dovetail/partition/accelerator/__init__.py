"""Whole networks on one FPGA: dedicated engines for the first layers, reusable ones for the rest, or one kind alone."""
