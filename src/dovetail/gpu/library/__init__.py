"""Operators without a kernel of ours, by PyTorch."""
