"""Kernels compile for real GPUs, with and without dependent launches, on a machine that has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu.outside import printed


@pytest.mark.parametrize("capability", [90, pytest.param(80, marks=pytest.mark.deep("a minute for an older generation"))])
def test_every_kind_of_kernel_compiles_to_machine_code(capability: int, tmp_path: Path) -> None:
    assert int(printed("tests.gpu.compile_all", capability, tmp_path).split()[0]) >= 40
