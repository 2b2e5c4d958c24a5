"""Campaigns on Dask workers that are killed, a scheduler that is, what a job costs beside its work, and stores of many results.

`python bench/explore.py --json FILE [--part killed|scheduler|overhead|store] [--jobs 1000]`. Without `--part`, all.

| part | what it does |
|---|---|
| killed | jobs on four workers, of which one is killed every 20 s: every key once, every result right |
| scheduler | the same, and the scheduler killed in the middle and started again: which jobs ran twice |
| overhead | jobs that do nothing, on a pool of four processes and on four Dask workers |
| store | seconds per job where a store holds 1,000 to 100,000 results |
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dovetail.explore.campaign import CampaignReport, run_jobs
from dovetail.explore.cluster import dask_crew
from dovetail.explore.crew import Crew, Ended, local_crew
from dovetail.explore.job import CampaignJob, Outcome, perform
from dovetail.explore.store import ResultStore
from dovetail.files import replace_text
from dovetail.progress import silent
from lib import campaign_work
from lib.campaign_work import job

WORKERS = 4
KILL_S = 20.0
SEED = 37
CHANNELS = 48
"""Of a job's convolution: a fifth of a second on one core, about."""
IDLE_JOBS = 400
HELD = (1_000, 10_000, 100_000)
LAST = 1_000
"""Jobs that are timed on top of a store's results."""


class Cluster:
    """A scheduler and workers as their users start them, each a process that is started again when it ends."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        self.folder, self.ended, self.deaths = folder, threading.Event(), Counter[str]()
        self.commands = {"scheduler": ("scheduler", "--host", "127.0.0.1", "--port", self.address.rsplit(":", 1)[1],
                                       "--no-dashboard"),
                         **{f"worker{i}": ("worker", self.address, "--nthreads", "1", "--no-nanny", "--no-dashboard",
                                           "--memory-limit", "1GB") for i in range(WORKERS)}}
        self.running = {name: self._started(name) for name in self.commands}
        self.watch = threading.Thread(target=self._watched)
        self.watch.start()

    def _started(self, name: str) -> subprocess.Popen[bytes]:
        place = self.folder / name
        place.mkdir(exist_ok=True)
        paths = os.pathsep.join((str(Path(__file__).parent), *filter(None, sys.path)))
        with open(place / "log", "ab") as log:
            return subprocess.Popen([sys.executable, "-m", "dask", *self.commands[name]], stdout=log, stderr=log, cwd=place,
                                    env={**os.environ, "PYTHONPATH": paths})

    def _watched(self) -> None:
        while not self.ended.wait(0.5):
            for name, process in self.running.items():
                if process.poll() is not None:
                    self.running[name] = self._started(name)

    def kill(self, name: str) -> None:
        self.deaths[name] += 1
        self.running[name].kill()

    def close(self) -> None:
        self.ended.set()
        self.watch.join()
        for process in self.running.values():
            process.kill()
            process.wait()


@contextmanager
def cluster() -> Iterator[tuple[Cluster, Path]]:
    folder = Path(tempfile.mkdtemp(prefix="dovetail-cluster-"))
    made = Cluster(folder)
    try:
        yield made, folder
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def every(seconds: float, act: Callable[[], None]) -> Iterator[None]:
    """Do something again and again meanwhile."""
    ended = threading.Event()

    def loop() -> None:
        while not ended.wait(seconds):
            act()
    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def campaign(jobs: Sequence[CampaignJob], place: Cluster, folder: Path) -> tuple[CampaignReport, dict[str, Outcome], float]:
    begun = time.monotonic()
    with ResultStore(folder / "store") as store, dask_crew(place.address, WORKERS) as crew:
        report = run_jobs(jobs, store, crew, silent)
        return report, store.read(j.key for j in jobs), time.monotonic() - begun


def judged(jobs: Sequence[CampaignJob], report: CampaignReport, found: dict[str, Outcome], log: Path,
           place: Cluster) -> dict[str, Any]:
    """How often jobs ran and were kept, and whether their results are right."""
    runs = Counter(int(line) for line in log.read_text().split())
    right = sum((found[j.key].result or {}).get("digest") == campaign_work.digest(j.arguments["seed"], CHANNELS)
                for j in jobs if j.key in found)
    return {"jobs": len(jobs), "kept": len(found), "right": right, "lost_runs": report.lost, "failed": report.failed,
            "ran_more_than_once": sum(count > 1 for count in runs.values()), "runs": sum(runs.values()),
            "killed": dict(place.deaths)}


def killed(count: int) -> dict[str, Any]:
    with cluster() as (place, folder):
        jobs = convolutions(count, folder / "log")
        draw = random.Random(SEED)
        with every(KILL_S, lambda: place.kill(f"worker{draw.randrange(WORKERS)}")):
            report, found, seconds = campaign(jobs, place, folder)
        return {**judged(jobs, report, found, folder / "log", place), "seconds": seconds}


def scheduler(count: int) -> dict[str, Any]:
    with cluster() as (place, folder):
        jobs, log = convolutions(count, folder / "log"), folder / "log"

        def look() -> None:
            if not place.deaths and log.exists() and len(log.read_text().split()) > count // 2:
                place.kill("scheduler")
        with every(0.2, look):
            report, found, seconds = campaign(jobs, place, folder)
        return {**judged(jobs, report, found, log, place), "handed_over_at_most": 2 * WORKERS, "seconds": seconds}


def convolutions(count: int, log: Path) -> list[CampaignJob]:
    log.touch()
    return [job(f"{i}", campaign_work.convolution, seed=i, channels=CHANNELS, log=str(log)) for i in range(count)]


def overhead(count: int) -> dict[str, Any]:
    """Seconds per job that does nothing, workers being there."""
    jobs, found = [job(f"{i}", campaign_work.nothing, x=i) for i in range(IDLE_JOBS)], dict[str, Any]()

    def timed(crew: Crew, folder: Path) -> float:
        with ResultStore(folder / f"store{len(found)}") as store:
            run_jobs(jobs[:2 * WORKERS], store, crew, silent)
            begun = time.monotonic()
            run_jobs(jobs, store, crew, silent)
            return (time.monotonic() - begun) / (IDLE_JOBS - 2 * WORKERS)
    with cluster() as (place, folder):
        with dask_crew(place.address, WORKERS) as crew:
            found["dask_s"] = timed(crew, folder)
        with local_crew(WORKERS) as pool:
            found["pool_s"] = timed(pool, folder)
    return {"jobs": IDLE_JOBS, **found}


class Here:
    """One worker, this process."""

    def __init__(self) -> None:
        self.found: list[Ended] = []

    def room(self, memory_bytes: int) -> bool:
        return not self.found

    def begin(self, job: CampaignJob) -> None:
        self.found.append(Ended(job, Outcome(*perform(job.work, job.arguments, {}, {}))))

    def ended(self) -> list[Ended]:
        found, self.found = self.found, []
        return found


def store(count: int) -> dict[str, Any]:
    """Seconds per further job by how many results a store holds, and per known job of a second run."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for held in HELD:
            before = [job(f"{i}", campaign_work.nothing, x=i) for i in range(held)]
            more = [job(f"more {i}", campaign_work.nothing, x=i) for i in range(LAST)]
            with ResultStore(Path(folder) / f"{held}") as kept:
                run_jobs(before, kept, Here(), silent)
                begun = time.process_time()
                run_jobs(more, kept, Here(), silent)
                added = time.process_time()
                run_jobs(before, kept, Here(), silent)
                found[str(held)] = {"per_job_s": (added - begun) / LAST, "per_known_s": (time.process_time() - added) / held}
    return {"by_results": found, "most_over_least": max(f["per_job_s"] for f in found.values())
            / min(f["per_job_s"] for f in found.values())}


PARTS: dict[str, Callable[[int], dict[str, Any]]] = {"killed": killed, "scheduler": scheduler, "overhead": overhead,
                                                     "store": store}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--part", choices=list(PARTS))
    parser.add_argument("--jobs", type=int, default=1000)
    options = parser.parse_args()
    held = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    bad = False
    for name in [options.part] if options.part else PARTS:
        held[name] = {**PARTS[name](options.jobs), "date": date.today().isoformat()}
        print(name, json.dumps(held[name]), flush=True)
        bad |= any(held[name].get(key, held[name].get("jobs")) != held[name].get("jobs") for key in ("kept", "right"))
        held |= {"command": "python bench/explore.py --json FILE", "seed": SEED, "workers": WORKERS, "kill_s": KILL_S,
                 "versions": f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores, "
                             f"distributed {version('distributed')}"}
        if options.json:
            replace_text(options.json, json.dumps(held, indent=1) + "\n")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
