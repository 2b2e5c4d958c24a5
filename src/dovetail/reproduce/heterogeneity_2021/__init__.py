"""Heterogeneity 2021: blocks of networks on a GPU and an FPGA."""
