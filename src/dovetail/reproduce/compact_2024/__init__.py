"""Compact DNNs 2024: fused kernels on GPUs, accelerators on FPGAs."""
