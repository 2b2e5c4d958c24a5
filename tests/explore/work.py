"""What workers of the tests compute."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dovetail.errors import InfeasibleError
from dovetail.explore.job import CampaignJob, StoredFile, Work

Files = Mapping[str, Path]


def job(name: str, work: Work, memory_bytes: int = 1, files: Mapping[str, StoredFile] | None = None,
        **arguments: Any) -> CampaignJob:
    return CampaignJob(f"key of {name}", work.__name__, name, work, arguments, memory_bytes, files or {})


def square(arguments: Mapping[str, Any], files: Files) -> dict[str, Any]:
    return {"square": arguments["x"] ** 2}


def square_counted(arguments: Mapping[str, Any], files: Files) -> dict[str, Any]:
    """The same, with a line in a file for every run."""
    with open(arguments["log"], "a", encoding="ascii") as log:
        log.write(f"{arguments['x']}\n")
    time.sleep(arguments["s"])
    return square(arguments, files)


def length(arguments: Mapping[str, Any], files: Files) -> dict[str, Any]:
    return {"bytes": len(files["model"].read_bytes())}


def impossible(arguments: Mapping[str, Any], files: Files) -> dict[str, Any]:
    raise InfeasibleError("no plan meets the limits")


def wrong(arguments: Mapping[str, Any], files: Files) -> dict[str, Any]:
    raise ZeroDivisionError("a mistake")


def dies_at_first(arguments: Mapping[str, Any], files: Files) -> dict[str, Any]:
    """Kill the worker, but not where another one was killed so before."""
    mark = Path(arguments["mark"])
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"survived": True}


def dies(arguments: Mapping[str, Any], files: Files) -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def stay(arguments: Mapping[str, Any], files: Files) -> dict[str, Any]:
    """When it began and ended, by the clock of all processes of the machine."""
    began = time.monotonic()
    time.sleep(0.05)
    return {"began": began, "ended": time.monotonic()}
