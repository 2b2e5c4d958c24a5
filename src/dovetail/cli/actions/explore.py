"""What `dovetail explore` does: compute what the store lacks of a space, and show what is known of all of it."""

from __future__ import annotations

import argparse

from dovetail.cli.output import emit, keeping, progress_bar, warn
from dovetail.explore.campaign import CampaignReport, run_jobs
from dovetail.explore.cluster import crew_of
from dovetail.explore.designs import read_space
from dovetail.explore.findings import Exploration
from dovetail.explore.page import exploration_page
from dovetail.explore.store import ResultStore
from dovetail.files import cache_kind, check_file, replace_text
from dovetail.shown import check_table, write_table
from dovetail.words import counted

MOST_FAILED = 10
"""Failed jobs that are named."""


def explore_command(options: argparse.Namespace) -> int:
    """Run `dovetail explore`."""
    if options.output is not None:
        check_file(options.output)
    check_table(options.table)
    space = read_space(options.space)
    path = options.store or cache_kind("explore") / "results.sqlite"
    with ResultStore(path) as store:
        with keeping(path, "what was computed"), crew_of(options.workers, options.cluster) as workers, progress_bar() as progress:
            report = run_jobs(space.jobs, store, workers, progress)
        found = Exploration(space, store.read(job.key for job in space.jobs))
    if options.output is not None:
        replace_text(options.output, exploration_page(found))
    if options.table is not None:
        write_table(options.table, found.rows())
    failed = list(report.failed.items())
    warn([f"{label}: no result, {problem}" for label, problem in failed[:MOST_FAILED]])
    warn([f"{len(failed) - MOST_FAILED:,} more without a result"] if len(failed) > MOST_FAILED else [])
    document = found.document() | {"store": str(path), "jobs": _counts(report)}
    emit(options.json, document, lambda: f"{found}\n{_said(report, path)}")
    return 1 if failed else 0


def _counts(report: CampaignReport) -> dict[str, object]:
    return {"known": report.known, "computed": report.computed, "lost": report.lost, "failed": dict(report.failed)}


def _said(report: CampaignReport, path: object) -> str:
    lost = f", {counted(report.lost, 'run')} begun again" if report.lost else ""
    return f"{counted(report.computed, 'job')} computed{lost}, {report.known:,} known before; kept in {path}"
