"""Runners around a real build that wait, hang or die where a test says so; worker processes import them from here."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dovetail.ir import Array
from dovetail.serve.runner import Opened, Runner, open_build

POISON = 77.0
"""A value of a frame that ends whoever computes it."""
POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class Gated:
    """Says in a folder which batch it begins, and computes it once `open` is there."""

    runner: Runner
    folder: Path

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        frames = len(next(iter(inputs.values())))
        (self.folder / f"began-{len(list(self.folder.glob('began-*')))}-{frames}-{os.getpid()}").touch()
        while not (self.folder / "open").exists():
            time.sleep(POLL_S)
        return self.runner.run(inputs)


@dataclass(frozen=True, slots=True)
class Frail:
    """Dies of a poisoned frame, and hangs at the first batch that it begins."""

    runner: Runner
    folder: Path

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        if any(np.any(x == POISON) for x in inputs.values()):
            os.kill(os.getpid(), signal.SIGKILL)
        if not (self.folder / "hung").exists():
            (self.folder / "hung").touch()
            signal.pause()
        return self.runner.run(inputs)


def open_gated(build: Path, folder: Path) -> Opened:
    opened = open_build(build, False)
    return replace(opened, runner=Gated(opened.runner, folder))


def open_frail(build: Path, folder: Path) -> Opened:
    opened = open_build(build, False)
    return replace(opened, runner=Frail(opened.runner, folder))
