"""Campaigns: every key once, whoever dies; what was found is kept, and no more runs at once than memory has room for."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from dovetail.errors import UsageError
from dovetail.explore.campaign import TRIES, run_jobs
from dovetail.explore.cluster import dask_crew
from dovetail.explore.crew import local_crew
from dovetail.explore.job import Outcome, StoredFile
from dovetail.explore.store import ResultStore
from dovetail.progress import silent
from tests.explore import work
from tests.explore.work import job

pytestmark = pytest.mark.slow("starts processes")


def test_two_workers_compute_every_key_once_and_a_second_run_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    jobs = [job(f"{x}", work.square_counted, x=x, log=str(log), s=0.0) for x in range(20)]
    with ResultStore(tmp_path / "store") as store, local_crew(2) as crew:
        first = run_jobs([*jobs, *jobs[:5]], store, crew, silent)
        again = run_jobs([*jobs, job("20", work.square, x=20)], store, crew, silent)
        found = store.read(j.key for j in jobs)
    assert (first.known, first.computed, again.known, again.computed) == (0, 20, 20, 1)
    assert [found[j.key].result for j in jobs] == [{"square": x * x} for x in range(20)]
    assert Counter(log.read_text().split()) == Counter(str(x) for x in range(20))


def test_a_killed_worker_is_replaced_and_its_job_begun_again(tmp_path: Path) -> None:
    jobs = [job("mortal", work.dies_at_first, mark=str(tmp_path / "mark")),
            *(job(f"{x}", work.square, x=x) for x in range(4))]
    with ResultStore(tmp_path / "store") as store, local_crew(2) as crew:
        report = run_jobs(jobs, store, crew, silent)
        found = store.read(j.key for j in jobs)
    assert (report.lost, report.computed, report.failed) == (1, 5, {})
    assert found["key of mortal"].result == {"survived": True}


def test_a_job_that_kills_every_worker_is_given_up_alone_and_a_mistake_is_told(tmp_path: Path) -> None:
    jobs = [job("deadly", work.dies), job("wrong", work.wrong), job("impossible", work.impossible), job("3", work.square, x=3)]
    with ResultStore(tmp_path / "store") as store, local_crew(2) as crew:
        report = run_jobs(jobs, store, crew, silent)
        found = store.read(j.key for j in jobs)
    assert report.failed == {"deadly": f"{TRIES} workers died of it", "wrong": "a mistake"}
    assert {key: o.refusal for key, o in found.items()} == {"key of impossible": "no plan meets the limits", "key of 3": None}


def test_jobs_that_do_not_fit_together_run_one_after_another(tmp_path: Path) -> None:
    jobs = [job(f"{i}", work.stay, memory_bytes=6) for i in range(4)] + [job("huge", work.stay, memory_bytes=100)]
    with ResultStore(tmp_path / "store") as store, local_crew(3, memory_bytes=10) as crew:
        run_jobs(jobs, store, crew, silent)
        found = [o.result for o in store.read(j.key for j in jobs).values()]
    stays = sorted((f["began"], f["ended"]) for f in found if f)
    assert len(stays) == 5
    assert all(ended <= began for (_, ended), (began, _) in pairwise(stays))


def test_dask_workers_find_the_same_with_files_sent_to_them_and_one_killed(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.write_bytes(b"x" * 1000)
    stored = StoredFile.of(model)
    jobs = [job("mortal", work.dies_at_first, mark=str(tmp_path / "mark")), job("file", work.length, files={"model": stored}),
            job("impossible", work.impossible), *(job(f"{x}", work.square, x=x) for x in range(10))]
    with ResultStore(tmp_path / "store") as store, dask_crew("local", 2) as crew:
        report = run_jobs(jobs, store, crew, silent)
        found = store.read(j.key for j in jobs)
    assert (report.computed, report.failed) == (13, {})
    assert found["key of file"].result == {"bytes": 1000}
    assert found["key of 7"].result == {"square": 49}
    assert found["key of impossible"].refusal == "no plan meets the limits"


def test_a_file_that_changed_meanwhile_gives_no_result(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.write_bytes(b"before")
    changed = job("file", work.length, files={"model": StoredFile.of(model)})
    model.write_bytes(b"after")
    with ResultStore(tmp_path / "store") as store, local_crew(1) as crew:
        report = run_jobs([changed], store, crew, silent)
        assert len(store) == 0
    assert report.failed == {"file": f"{model}: the file changed while jobs on it were waiting; run the same command again"}


def test_a_store_has_one_writer_and_keeps_the_first_result_of_a_key(tmp_path: Path) -> None:
    path, one = tmp_path / "store", job("1", work.square, x=1)
    with ResultStore(path) as store:
        assert store.keep(one, Outcome({"square": 1}, None, 0.5))
        assert not store.keep(one, Outcome({"square": 2}, None, 0.5))
        with pytest.raises(UsageError, match=r"store: another campaign writes to it; wait for its end, or give another --store"):
            ResultStore(path)
    with ResultStore(path) as store:
        assert store.read([one.key]) == {one.key: Outcome({"square": 1}, None, 0.5)}


def test_a_foreign_or_damaged_store_is_refused_by_name(tmp_path: Path) -> None:
    path, one = tmp_path / "store", job("1", work.square, x=1)
    with ResultStore(path) as store:
        store.keep(one, Outcome({"square": 1}, None, 0.5))
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE results SET result = '{\"square\": 2}'")
    with ResultStore(path) as store, pytest.raises(UsageError, match="the result of key of 1 is damaged; remove"):
        store.read([one.key])
    (tmp_path / "text").write_text("no store, but long enough for a header of a hundred bytes " * 9)
    with pytest.raises(UsageError, match=r"text: not a readable store of results \(file is not a database\); remove it"):
        ResultStore(tmp_path / "text")
    with closing(sqlite3.connect(tmp_path / "other")) as file, file:
        file.execute("CREATE TABLE results (key TEXT)")
    with pytest.raises(UsageError, match=r"other: holds no results of this version; give another --store"):
        ResultStore(tmp_path / "other")
