"""The loop of every campaign: what the store lacks is computed, each key once, and kept as soon as it is known."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from dovetail.errors import InternalError, MissingToolError
from dovetail.explore.crew import Crew
from dovetail.explore.job import CampaignJob
from dovetail.explore.store import ResultStore
from dovetail.progress import Progress

TRIES = 3
"""Workers that one job may lose before it is given up: then it is likely the cause. Chosen, not measured."""


@dataclass(slots=True)
class CampaignReport:
    """What a run of a campaign did."""

    known: int = 0
    """Keys whose results were in the store before."""
    computed: int = 0
    lost: int = 0
    """Runs whose worker died: begun again."""
    failed: dict[str, str] = field(default_factory=dict)
    """Labels of jobs without a result, and what went wrong; the next run tries them again."""


def run_jobs(jobs: Iterable[CampaignJob], store: ResultStore, crew: Crew, progress: Progress) -> CampaignReport:
    """Compute what the store lacks; jobs of one key are one job, those of the most memory begin first.

    Raises:
        MissingToolError: a job's tool is not installed.
        InternalError: a job found a mistake of ours.
    """
    wanted = {job.key: job for job in jobs}
    known = store.known(wanted)
    report, lost = CampaignReport(known=len(known)), Counter[str]()
    waiting: dict[int, deque[CampaignJob]] = {}
    for key, job in wanted.items():
        if key not in known:
            waiting.setdefault(job.memory_bytes, deque()).append(job)
    needs = sorted(waiting, reverse=True)
    left, running = len(wanted) - len(known), 0
    while left:
        while (need := next((n for n in needs if waiting[n] and crew.room(n)), None)) is not None:
            job = waiting[need].popleft()
            progress(job.label, len(wanted) - left, len(wanted))
            crew.begin(job)
            running += 1
        for end in crew.ended():
            running -= 1
            if isinstance(end.error, MissingToolError | InternalError):
                raise end.error
            if end.outcome is None and end.error is None:
                report.lost += 1
                lost[end.job.key] += 1
                if lost[end.job.key] < TRIES:
                    waiting[end.job.memory_bytes].appendleft(end.job)
                    continue
            left -= 1
            if end.outcome is not None:
                report.computed += store.keep(end.job, end.outcome)
            else:
                report.failed[end.job.label] = f"{lost[end.job.key]} workers died of it" if end.error is None else \
                    str(end.error) or type(end.error).__name__
    progress("all jobs", len(wanted), len(wanted))
    return report
