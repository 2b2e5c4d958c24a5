"""Modules of these tests run in a process of their own, where kernels are compiled and not interpreted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def printed(module: str, capability: int, cache: Path) -> str:
    """What a module prints for GPUs of a compute capability; it must end well."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(cache), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-m", module, str(capability)], env=environment, text=True, capture_output=True,
                          cwd=Path(__file__).parents[2], check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
