"""What workers of `bench/explore.py` compute: an exact convolution that a seed draws, with a line in a file when it begins."""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.explore.job import CampaignJob, Work

Files = Mapping[str, Path]


def job(name: str, work: Work, **arguments: Any) -> CampaignJob:
    """A job that needs next to no memory."""
    return CampaignJob(f"bench {work.__name__} {name}", work.__name__, name, work, arguments, 1)


def convolution(arguments: Mapping[str, Any], files: Files) -> dict[str, Any]:
    """A digest of a drawn 3 x 3 convolution in integers, and who computed it."""
    with open(arguments["log"], "a", encoding="ascii") as log:
        log.write(f"{arguments['seed']}\n")
    return {"digest": digest(arguments["seed"], arguments["channels"]), "process": os.getpid()}


def digest(seed: int, channels: int) -> str:
    rng = np.random.default_rng(seed)
    frame = rng.integers(-128, 128, (channels, 34, 34))
    weights = rng.integers(-128, 128, (channels, channels, 3, 3))
    windows = np.lib.stride_tricks.sliding_window_view(frame, (3, 3), (1, 2))
    return sha256(np.einsum("crxij,ocij->orx", windows, weights).tobytes()).hexdigest()


def nothing(arguments: Mapping[str, Any], files: Files) -> dict[str, Any]:
    return {"x": arguments["x"]}
