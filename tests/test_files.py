"""Folders that are replaced while others look, and caches that others could have written to."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail import files
from dovetail.errors import UsageError
from dovetail.files import exchange, replace_folder
from dovetail.fpga.toolchain.tools import cached
from dovetail.gpu.remembered import for_gpu

REPLACED = 300
"""Times that a folder is replaced while another process looks."""
LOOK = """
import sys
from pathlib import Path
folder, stop = Path(sys.argv[1]), Path(sys.argv[2])
looks = missing = 0
while not stop.exists():
    looks += 1
    missing += not folder.is_dir() or not (folder / "marker").is_file()
    if looks == 1:
        print("looking", flush=True)
print(looks, missing)
"""


def replace(folder: Path, content: str = "") -> None:
    with replace_folder(folder, "marker") as new:
        (new / "marker").write_text(content)


def test_a_folder_that_is_replaced_is_there_at_every_look(tmp_path: Path) -> None:
    folder = tmp_path / "build"
    replace(folder)
    looking = subprocess.Popen([sys.executable, "-c", LOOK, str(folder), str(tmp_path / "stop")], stdout=subprocess.PIPE,
                               text=True)
    assert looking.stdout is not None
    assert looking.stdout.readline() == "looking\n"
    for number in range(REPLACED):
        replace(folder, str(number))
    (tmp_path / "stop").touch()
    looks, missing = map(int, looking.communicate(timeout=120)[0].split())
    assert missing == 0, f"of {looks} looks"
    assert (folder / "marker").read_text() == str(REPLACED - 1)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["build", "stop"]


def test_processes_that_replace_one_folder_do_not_disturb_each_other(tmp_path: Path) -> None:
    code = ("import sys\nfrom pathlib import Path\nfrom dovetail.files import replace_folder\n"
            "for i in range(100):\n    with replace_folder(sys.argv[1], 'marker') as new:\n        (new / 'marker').touch()\n")
    others = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "build")], stderr=subprocess.PIPE, text=True)
              for _ in range(3)]
    assert [(p.communicate(timeout=240)[1], p.returncode) for p in others] == [("", 0)] * 3
    assert [p.name for p in tmp_path.iterdir()] == ["build"]


def test_a_system_that_cannot_exchange_names_still_replaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(a: Path, b: Path) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    monkeypatch.setattr(files, "exchange", unknown)
    for content in ("old", "new"):
        replace(tmp_path / "build", content)
    assert (tmp_path / "build" / "marker").read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["build"]


def test_names_are_exchanged(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.mkdir()
    b.write_text("b")
    exchange(a, b)
    assert (a.read_text(), b.is_dir()) == ("b", True)
    with pytest.raises(FileNotFoundError):
        exchange(a, tmp_path / "nowhere")


def store(folder: Path) -> None:
    (folder / "program").write_text("result")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOVETAIL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_cache_is_made_for_its_user_alone_whatever_the_umask_says(cache: Path) -> None:
    before = os.umask(0)
    try:
        cached("kind", "key", store)
    finally:
        os.umask(before)
    assert [p.stat().st_mode & 0o777 for p in (cache, cache / "kind", cache / "kind" / "key")] == [0o700] * 3
    assert not any(p.stat().st_mode & 0o022 for p in cache.rglob("*"))
    assert cached("kind", "key", store)[1]


@pytest.mark.parametrize("part", ["", "kind", "kind/key", "kind/key/program"])
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_a_cache_that_others_may_write_to_is_refused(cache: Path, part: str, mode: int) -> None:
    cached("kind", "key", store)
    path = cache / part
    path.chmod(path.stat().st_mode | mode)
    with pytest.raises(UsageError, match=rf"^cache {path}: others may write to it \(mode .*chmod -R go-w {cache}` ends that\)"):
        cached("kind", "key", store)
    subprocess.run(["chmod", "-R", "go-w", str(cache)], check=True)
    assert cached("kind", "key", store)[1]


@pytest.mark.parametrize("part", ["", "kind", "kind/key", "kind/key/program"])
def test_a_cache_of_another_user_is_refused(cache: Path, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cached("kind", "key", store)
    owner, path = os.geteuid(), cache / part
    honest = files._trouble
    inode = path.lstat().st_ino

    def foreign(found: os.stat_result) -> str:
        values = list(found)
        values[4] = owner + (found.st_ino == inode)
        return honest(os.stat_result(values))
    monkeypatch.setattr(files, "_trouble", foreign)  # only an administrator can give files away
    said = (rf"^cache {path}: belongs to user {owner + 1}, not to you \(user {owner}\), and what is in it would be trusted; "
            "remove it, or set DOVETAIL_CACHE to a folder of your own$")
    with pytest.raises(UsageError, match=said):
        cached("kind", "key", store)


def test_a_link_in_the_cache_is_refused_and_the_cache_may_be_one(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    cache.symlink_to(tmp_path / "elsewhere")
    folder, _ = cached("kind", "key", store)
    assert cached("kind", "key", store)[1]
    (folder / "program").rename(tmp_path / "program")
    (folder / "program").symlink_to(tmp_path / "program")
    with pytest.raises(UsageError, match=rf"^cache {folder}/program: is a symbolic link, and what is in it would be trusted"):
        cached("kind", "key", store)


def test_choices_for_gpus_are_kept_for_their_user_alone(cache: Path) -> None:
    before = os.umask(0)
    try:
        for_gpu("a", ()).save()
    finally:
        os.umask(before)
    kept = for_gpu("a", ()).path
    assert kept is not None
    assert kept.stat().st_mode & 0o777 == 0o600
    kept.chmod(0o666)
    with pytest.raises(UsageError, match=r"others may write to it \(mode 0666"):
        for_gpu("a", ())
