"""Cases of a script as jobs of the engine behind `dovetail explore`: in processes of this machine, or on a Dask cluster."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dovetail.explore.campaign import run_jobs
from dovetail.explore.cluster import crew_of
from dovetail.explore.job import CampaignJob, Outcome, Work
from dovetail.explore.store import ResultStore
from dovetail.progress import silent

Keep = Callable[[str, Mapping[str, Any]], None]
"""Told the label of a job and its result, as soon as it is known."""


def add_arguments(parser: argparse.ArgumentParser, workers: int) -> None:
    """Where jobs run."""
    parser.add_argument("--workers", "--jobs", type=int, default=workers, help="processes (default: %(default)s)")
    parser.add_argument("--cluster", metavar="ADDRESS", help="of a Dask scheduler, or local (default: processes of this machine)")


def job(work: Work, label: str, memory_bytes: int, **arguments: Any) -> CampaignJob:
    """A job that runs once in a campaign; what was known before is the script's to leave out."""
    return CampaignJob(label, work.__name__, label, work, arguments, memory_bytes)


class _Told(ResultStore):
    """A store that tells of every result."""

    def __init__(self, path: Path, keep: Keep) -> None:
        super().__init__(path)
        self.tell = keep

    def keep(self, job: CampaignJob, outcome: Outcome) -> bool:
        new = super().keep(job, outcome)
        if new:
            self.tell(job.label, {"refused": outcome.refusal} if outcome.result is None else outcome.result)
        return new


def run(jobs: Iterable[CampaignJob], options: argparse.Namespace, keep: Keep) -> dict[str, str]:
    """Run jobs and tell of each result once; the labels of those without one, and why."""
    with (TemporaryDirectory() as folder, _Told(Path(folder) / "results.sqlite", keep) as store,
          crew_of(options.workers, options.cluster) as workers):
        return run_jobs(jobs, store, workers, silent).failed
