"""Kernels run in Triton's interpreter, as in tests/gpu: it must be chosen before Triton is imported."""

import os

from tests.gpu.conftest import quick_interpreter

os.environ["TRITON_INTERPRET"] = "1"
__all__ = ["quick_interpreter"]
