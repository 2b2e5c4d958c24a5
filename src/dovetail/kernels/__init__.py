"""Which kernels a graph becomes on a GPU and how long each lasts: pure planning, without Triton or a GPU.

`cost` prices GPUs with it, `gpu` makes its launches real.
"""
