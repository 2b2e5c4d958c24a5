"""What `dovetail reproduce` does."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from dovetail.cli.options import refuse_unused
from dovetail.cli.output import emit, progress_bar, warn
from dovetail.cli.reproduce import ALL
from dovetail.errors import ToolError
from dovetail.explore.campaign import run_jobs
from dovetail.explore.cluster import crew_of
from dovetail.explore.job import CampaignJob, StoredFile
from dovetail.explore.store import ResultStore
from dovetail.files import check_folder, replace_folder
from dovetail.platform.device import ModelSet
from dovetail.platform.load import load_platform
from dovetail.progress import Progress
from dovetail.reproduce import page
from dovetail.reproduce.catalogue import RECORDS, SIMULATED, Run, command_of, items_of
from dovetail.reproduce.papers import PAPERS, Asked, Document, compute_part
from dovetail.terminal import table, wide

TABLES = "tables.txt"
"""The file that tells a folder of `reproduce` from anything else."""
MEMORY_BYTES = 2 << 30
"""What a part of a paper may need. Chosen, not measured."""


def _check_used(options: argparse.Namespace) -> None:
    """Refuse what another paper, or another part of it, would read."""
    paper = " ".join((options.paper, *([options.part] if options.part else ()),
                      *([f"--figure {options.figure}"] if options.figure else ())))
    compact, blocks = options.paper == "compact-2024", options.paper == "heterogeneity-2021"
    read = {"--figure": (options.figure, blocks), "--models": (options.models, blocks and options.figure != 1),
            "--part": (options.part, compact), "--network": (options.network, compact and options.part == "fibha"),
            "--boards": (options.boards, options.paper in ("lq-2020", ALL)),
            "--fresh": (options.fresh, options.paper in ("compact-2024", "lq-2020", ALL)),
            "--record": (options.record, options.paper == "lq-2020"
                         or (compact and not (options.part == "fibha" and options.network)))}
    refuse_unused(f"reproduce {paper}", {name: value for name, (value, used) in read.items() if not used},
                  "`dovetail reproduce --help` says what each belongs to")


def _part(options: argparse.Namespace, paper: str) -> str:
    """The part that is asked for, else the paper's first."""
    return options.part or (f"figure {options.figure}" if options.figure else next(iter(PAPERS[paper].parts)))


def _wanted(options: argparse.Namespace, paper: str, whole: bool) -> dict[str, Asked]:
    """What is asked of each part of a paper: of one, or of all; a record or networks that are given belong to that one."""
    asked = Asked(ModelSet(options.models or ModelSet.PLANNING.value), (), None, tuple(options.boards or ()), options.fresh)
    mine = replace(asked, networks=tuple(options.network or ()), record=options.record)
    part = _part(options, paper)
    return {name: mine if name == part else asked for name in PAPERS[paper].parts if whole or name == part}


def _run(options: argparse.Namespace, paper: str, documents: dict[str, Document]) -> Run:
    """A paper with the documents of its parts."""
    anew = {"fibha"} if options.network or options.fresh else set[str]()
    given = {record: options.record} if options.record and (record := PAPERS[paper].parts[_part(options, paper)].record) else {}
    return Run(paper, documents, frozenset(anew), SIMULATED if options.fresh else frozenset(), given)


def _computed(options: argparse.Namespace, wanted: dict[tuple[str, str], Asked], progress: Progress) -> list[Document]:
    """The documents of parts, here one after the other, or on the workers that are asked for.

    Raises:
        ToolError: workers died of a part.
    """
    if options.workers == 1 and options.cluster is None:
        return [PAPERS[paper].parts[name].compute(asked, progress) for (paper, name), asked in wanted.items()]
    jobs = [_job(paper, name, asked) for (paper, name), asked in wanted.items()]
    with (TemporaryDirectory() as folder, ResultStore(Path(folder) / "results.sqlite") as store,
          crew_of(options.workers, options.cluster) as workers):
        report, found = run_jobs(jobs, store, workers, progress), store.read(job.key for job in jobs)
    problems = {**report.failed, **{job.label: str(found[job.key].refusal) for job in jobs
                                    if job.key in found and found[job.key].result is None}}
    for label, problem in problems.items():
        raise ToolError(f"reproduce {label}: {problem}")
    return [result for job in jobs if (result := found[job.key].result) is not None]


def _job(paper: str, name: str, asked: Asked) -> CampaignJob:
    """The computation of one part."""
    label = f"{paper} {name}"
    arguments = {"paper": paper, "part": name, "models": asked.models.value, "networks": asked.networks, "boards": asked.boards,
                 "fresh": asked.fresh}
    files = {} if asked.record is None else {"record": StoredFile.of(asked.record)}
    return CampaignJob(label, "reproduce", label, compute_part, arguments, MEMORY_BYTES, files)


def _kept(runs: list[Run]) -> list[str]:
    """What `--fresh` left as it was recorded, and what making it anew would take."""
    return [f"{record.file} stays as recorded; making it anew takes {record.takes}: {record.command}"
            for run in runs for name, record in RECORDS.items() if record.paper == run.paper and name not in run.anew]


def _write(options: argparse.Namespace, runs: list[Run]) -> None:
    """The pages, all of them or none."""
    with replace_folder(options.output, TABLES) as folder, wide():
        written: list[str] = []
        for run in runs:
            parts = PAPERS[run.paper].parts
            tables = {command_of(run.paper, name): parts[name].text(found) for name, found in run.documents.items()}
            drawings = {file: svg for name, found in run.documents.items() for file, svg in parts[name].figures(found).items()}
            target = folder / run.paper if options.paper == ALL else folder
            target.mkdir(exist_ok=True)
            page.write(target, run.paper, PAPERS[run.paper].title, items_of(run), drawings, tables)
            written += tables.values()
        (folder / TABLES).write_text("\n\n".join(written) + "\n", encoding="utf-8")


def _items_text(runs: list[Run]) -> str:
    """Every item of some papers for a terminal."""
    items = [items_of(run) for run in runs]
    head = ["paper", "item", "verdict", "the paper", "ours", "ratio", "what"]
    return "\n".join([table(head, [row for each in items for row in page.item_rows(each)], (5,)), "",
                      *(f"{each[0].paper}: {page.tally(each)}" for each in items), "", page.RULE])


def reproduce_command(options: argparse.Namespace) -> int:
    """Run `dovetail reproduce`."""
    if options.output:
        check_folder(options.output, TABLES)
    _check_used(options)
    for count in options.boards or ():
        load_platform(f"fic:{count}")
    several = options.paper == ALL
    with progress_bar() as progress:
        papers = tuple(PAPERS) if several else (options.paper,)
        wanted = {(paper, name): asked for paper in papers
                  for name, asked in _wanted(options, paper, several or bool(options.output)).items()}
        documents = dict(zip(wanted, _computed(options, wanted, progress), strict=True))
    runs = [_run(options, paper, {name: found for (of, name), found in documents.items() if of == paper}) for paper in papers]
    if options.output:
        _write(options, runs)
    if options.fresh:
        warn(_kept(runs))
    if several:
        found = {run.paper: {"parts": run.documents, "items": [i.document() for i in items_of(run)]} for run in runs}
        emit(options.json, found, lambda: _items_text(runs))
    else:
        part = _part(options, options.paper)
        document = runs[0].documents[part]
        emit(options.json, document, lambda: PAPERS[options.paper].parts[part].text(document))
    return 0
