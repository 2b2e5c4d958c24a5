"""Kernels run in Triton's interpreter, on the CPU: it must be chosen before Triton is imported."""

import os

os.environ["TRITON_INTERPRET"] = "1"
