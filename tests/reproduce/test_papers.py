"""Every figure, table and claim of the four papers: listed, told on the docs page, and backed by a value, a file or a reason."""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

import papers as bench
from dovetail.cli import main
from dovetail.cli.actions import reproduce
from dovetail.reproduce import page
from dovetail.reproduce.catalogue import RECORDS, Run, entries, items_of
from dovetail.reproduce.item import ItemVerdict, PaperItem, PrintedLimit, Value, ValueSource
from dovetail.reproduce.ours import OURS
from dovetail.reproduce.papers import PAPERS, Asked

pytestmark = pytest.mark.quick
ROOT = Path(__file__).parents[2]
LIST = bench.papers()
ORIGIN = re.compile(r"\.json, (?:20\d\d-\d\d-\d\d|no date), commit (?:[0-9a-f]{7,}|unknown); python bench/\w+\.py .*; anew: ")
KINDS = ("printed", "drawn", "built", "impossible", "missing")
NUMBERED = {"figures": r"Figure (\d+(?:\.\d+)?)", "tables": r"Table ([IVX]+|\d+(?:\.\d+)?)", "equations": r"Eq\. (\d+(?:\.\d+)?)"}


@pytest.mark.parametrize("paper", LIST)
def test_the_list_the_package_and_the_registry_have_the_same_items(paper: str) -> None:
    assert {name: entry["title"] for name, entry in entries(paper).items()} == LIST[paper]["items"]
    assert paper in PAPERS


@pytest.mark.parametrize("paper", LIST)
def test_every_caption_of_a_text_is_an_item(paper: str) -> None:
    for kind, pattern in NUMBERED.items():
        named = {match[1] for item in LIST[paper]["items"] if (match := re.match(pattern, item))}
        assert len(named) == LIST[paper]["captions"][kind], kind


@pytest.mark.parametrize("paper", LIST)
def test_every_item_has_one_kind_of_answer_and_what_it_names_is_there(paper: str) -> None:
    for name, entry in entries(paper).items():
        (kind,) = [key for key in KINDS if key in entry]
        assert (name in OURS[paper]) == (kind in ("printed", "drawn")), name
        assert kind != "built" or (ROOT / entry["built"]).is_file(), name
        assert entry.get("record") in (None, *RECORDS), name
        assert entry.get("part", "all") in PAPERS[paper].parts or kind not in ("printed", "drawn"), name
    assert set(OURS[paper]) <= set(entries(paper))


def test_the_docs_page_has_a_line_for_every_item_with_both_numbers_where_they_differ() -> None:
    assert list(bench.problems(bench.read(), LIST)) == []


def test_the_check_of_the_docs_page_can_fail(tmp_path: Path) -> None:
    text = bench.PAGE.read_text(encoding="utf-8")
    (tmp_path / "page.md").write_text(re.sub(r"^- Figure 3: .*\n", "", text, flags=re.M)
                                      .replace("- Eq. 1:", "- Eq. 0:").replace("- Eq. 2: reproduced", "- Eq. 2: differs; 1"),
                                      encoding="utf-8")
    said = list(bench.problems(bench.read(tmp_path / "page.md"), LIST))
    for part in ("no line for gp-2023, Figure 3", "no line for gp-2023, Eq. 1", "does not have gp-2023, Eq. 0",
                 "gp-2023, Eq. 2 differs, and reproduction.md has not both numbers"):
        assert any(part in sentence for sentence in said), part


def test_details_say_what_the_page_says() -> None:
    for paper in LIST:
        details = (bench.DETAILS / f"{paper}.md").read_text(encoding="utf-8")
        told = dict(re.findall(rf"^- \*\*(.+?)\*\* \(({'|'.join(ItemVerdict)})\): ", details, re.M))
        assert told == {line.item: line.verdict for line in bench.read() if line.paper == paper}


def test_counts_add_up_and_nothing_unbuilt_is_counted_as_told() -> None:
    found = bench.counts(bench.read())
    assert found["items"] == sum(len(entry["items"]) for entry in LIST.values())
    assert found["items"] == sum(found[key] for key in bench.KEYS.values())
    missing = {f"{paper}: {name}" for paper in LIST for name, entry in entries(paper).items() if "missing" in entry}
    assert set(found["by_verdict"]["missing"]) == missing


def test_captions_are_counted_by_distinct_numbers_before_the_references() -> None:
    text = "Figure 1a shows. Fig. 2: x\nTable [5.1.](#p) and TABLE I\nEq. 3, Equation 12\n\\n(2.1)\nReferences\nFigure 9"
    assert bench.captions(text) == {"figures": 2, "tables": 2, "equations": 3}


@pytest.mark.parametrize(("value", "agrees"), [
    (Value("quantity", 1.0, 1.04, "x"), True), (Value("quantity", 1.0, 1.06, "x"), False), (Value("count", 26, 27), False),
    (Value("count", 17, 17), True), (Value("at most", 50, 8, "%", PrintedLimit.MOST), True),
    (Value("at least", 80, 8, "%", PrintedLimit.LEAST), False),
    (Value("drawn", None, 3.0), True), (Value("drawn", None, None), False), (Value("none of ours", 3.0, None), False)])
def test_a_verdict_follows_from_the_numbers(value: Value, agrees: bool) -> None:
    assert value.agrees == agrees
    assert PaperItem("p", "n", "t", (value,)).verdict is (ItemVerdict.REPRODUCED if agrees else ItemVerdict.DIFFERS)


def test_a_ratio_needs_both_numbers_and_no_zero() -> None:
    assert Value("", 2.0, 5.0).ratio == 2.5
    assert [Value("", *pair).ratio for pair in ((None, 1.0), (1.0, None), (0.0, 1.0))] == [None] * 3


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages") / "compact"
    assert main(["reproduce", "compact-2024", "-o", str(folder)]) == 0
    return folder


def test_a_page_has_every_item_with_its_source(written: Path) -> None:
    assert sorted(p.name for p in written.iterdir()) == ["compact-2024.html", "compact-2024.md", "items.json", "tables.txt"]
    items: list[dict[str, Any]] = json.loads((written / "items.json").read_text(encoding="utf-8"))
    text = (written / "compact-2024.md").read_text(encoding="utf-8")
    assert [item["name"] for item in items] == list(LIST["compact-2024"]["items"])
    for item in items:
        assert f"| {item['name']} |" in text
        if item["values"]:
            assert item["source"] == ValueSource.RECORD
            assert ORIGIN.search(item["origin"])
    assert "`dovetail reproduce compact-2024 --part fibha`" in text
    assert "…" not in (written / "tables.txt").read_text(encoding="utf-8"), "a file is no terminal: nothing is cut"


def test_workers_find_what_one_process_finds(written: Path, tmp_path: Path) -> None:
    assert main(["reproduce", "compact-2024", "-o", str(tmp_path / "two"), "--workers", "2"]) == 0
    one, two = ({p.name: p.read_bytes() for p in folder.iterdir()} for folder in (written, tmp_path / "two"))
    assert one == two


def test_all_papers_have_a_folder_each_and_every_item_in_the_terminal(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(reproduce, "PAPERS", {"compact-2024": PAPERS["compact-2024"]})  # the others take minutes
    assert main(["reproduce", "all", "-o", str(tmp_path / "pages"), "--json", str(tmp_path / "all.json")]) == 0
    assert sorted(p.name for p in (tmp_path / "pages").iterdir()) == ["compact-2024", "tables.txt"]
    found = json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))["compact-2024"]
    assert found["items"] == json.loads((tmp_path / "pages" / "compact-2024" / "items.json").read_text(encoding="utf-8"))
    assert list(found["parts"]) == ["fcm", "fibha"]
    assert main(["reproduce", "all"]) == 0
    text = capsys.readouterr().out
    assert "compact-2024: 26 items: " in text
    assert all(name in text for name in LIST["compact-2024"]["items"])


def test_docs_state_the_recorded_numbers(written: Path) -> None:
    items = json.loads((written / "items.json").read_text(encoding="utf-8"))
    lines = {line.item: line.rest for line in bench.read() if line.paper == "compact-2024"}
    for item in items:
        assert bench._line(item) == f"- {item['name']}: {item['verdict']}{lines[item['name']]}", (
            "dovetail reproduce all -o DIR, then python bench/papers.py --write DIR")


def test_pages_of_one_paper_are_written_and_those_of_others_stay(
        written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "compact-2024").mkdir()
    items = json.loads((written / "items.json").read_text(encoding="utf-8"))
    items[0]["name"] = "Renamed"
    (tmp_path / "compact-2024" / "items.json").write_text(json.dumps(items), encoding="utf-8")
    before = bench.PAGE.read_text(encoding="utf-8")
    (tmp_path / "page.md").write_text(before, encoding="utf-8")
    monkeypatch.setattr(bench, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(bench, "DETAILS", tmp_path)
    bench.write(tmp_path)
    after = bench.sections((tmp_path / "page.md").read_text(encoding="utf-8"))
    assert [p for p, lines in bench.sections(before).items() if after[p] != lines] == ["compact-2024"]
    assert after["compact-2024"][0].startswith("- Renamed: ")
    assert [p.name for p in tmp_path.glob("*.md") if p.name != "page.md"] == ["compact-2024.md"]


def test_what_was_made_anew_is_not_called_a_record() -> None:
    documents = {name: part.compute(Asked(), lambda *_: None) for name, part in PAPERS["compact-2024"].parts.items()}
    found = {item.name: item for item in items_of(Run("compact-2024", documents, frozenset({"fibha"})))}
    assert found["Abstract, throughput"].source is ValueSource.COMPUTED
    assert found["Abstract, throughput"].origin == "dovetail reproduce compact-2024 --part fibha"
    assert found["Abstract, fused kernels"].source is ValueSource.RECORD
    del documents["fibha"]["described"]["zcu102"]["mobilenet-v2"]
    assert {i.name: i for i in items_of(Run("compact-2024", documents))}["Paper I, over SESL"].verdict is ItemVerdict.MISSING


def test_a_record_that_is_given_is_named_as_the_source(tmp_path: Path) -> None:
    own = tmp_path / "own.json"
    own.write_text(resources.files("dovetail.reproduce").joinpath("records", "gpu_fcm.json").read_text("utf-8"), encoding="utf-8")
    assert main(["reproduce", "compact-2024", "--record", str(own), "-o", str(tmp_path / "pages")]) == 0
    items = {item["name"]: item for item in json.loads((tmp_path / "pages" / "items.json").read_text(encoding="utf-8"))}
    assert items["Abstract, end to end"]["origin"].startswith(f"{own}, 2026-")
    assert items["Abstract, fused kernels"]["origin"].startswith("fused_pairs.json, ")
    assert items["Abstract, throughput"]["origin"].startswith("fibha.json, ")


def test_fresh_says_what_it_cannot_make_anew(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "compact-2024", "--fresh"]) == 0
    assert "gpu_fcm.json stays as recorded; making it anew takes an NVIDIA GPU and 28 minutes: python bench/gpu_fcm.py" \
        in capsys.readouterr().err


@pytest.mark.parametrize(("arguments", "said"), [
    (["none-2021"], "invalid choice: 'none-2021'"),
    (["gp-2023", "--fresh"], "reproduce gp-2023: --fresh would have no effect"),
    (["all", "--part", "fibha"], "reproduce all fibha: --part would have no effect")])
def test_what_makes_no_sense_is_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(["reproduce", *arguments])
    except SystemExit as stop:
        code = int(stop.code or 0)
    assert code == 2
    assert said in capsys.readouterr().err


def test_a_folder_that_is_not_ours_is_refused_before_the_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep", encoding="utf-8")
    assert main(["reproduce", "all", "-o", str(tmp_path / "mine")]) == 2
    assert "exists and is not a folder of ours (no tables.txt in it)" in capsys.readouterr().err
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["notes.txt"]


def test_a_place_below_a_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert main(["reproduce", "compact-2024", "-o", str(tmp_path / "file" / "pages")]) == 2
    assert str(tmp_path / "file" / "pages") in capsys.readouterr().err


def test_nothing_half_written_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(page, "html", full)
    assert main(["reproduce", "compact-2024", "-o", str(tmp_path / "pages")]) == 2
    assert list(tmp_path.iterdir()) == []
