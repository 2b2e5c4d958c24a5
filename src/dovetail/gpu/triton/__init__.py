"""The kernels themselves, written in Triton."""
