"""Kernels run in Triton's interpreter, as in tests/gpu: it must be chosen before Triton is imported."""

import os

os.environ["TRITON_INTERPRET"] = "1"
