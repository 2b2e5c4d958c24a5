"""README and docs state what the committed records hold, and a figure that does not is named."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import check_figures
from check_figures import agrees, check, evaluate, read_table
from dovetail.errors import DovetailError

TABLE = """
whole = ["README.md"]
[records]
speed = "records/speed.json"
[names]
size = { "small" = "s", "large" = "l" }
[cited."README.md"]
"a frame in {} ms" = "<speed/frame_ms>"
"| $size | {} ms | {…} | {}× |" = ["<speed/sizes/$size>", "<speed/frame_ms> / <speed/sizes/$size>"]
[dated."README.md"]
"at 200 MHz" = "assumed"
"""
README = """# Example

It takes a frame
in 1.25 ms at 200 MHz.

| small | 0.50 ms | any words | 2.5× |
| large | 2.50 ms | others | 0.5× |
"""


def project(folder: Path, *, readme: str = README, table: str = TABLE, frame_ms: float = 1.2501) -> check_figures.Table:
    (folder / "records").mkdir()
    (folder / "docs").mkdir()
    (folder / "README.md").write_text(readme, encoding="utf-8")
    record = {"frame_ms": frame_ms, "sizes": {"s": 0.5, "l": 2.5}}
    (folder / "records" / "speed.json").write_text(json.dumps(record), encoding="utf-8")
    (folder / "docs" / "figures.toml").write_text(table, encoding="utf-8")
    return read_table(folder / "docs" / "figures.toml")


def test_readme_and_docs_state_what_the_records_hold() -> None:
    wrong, _, compared = check(read_table(check_figures.TABLE))
    assert [str(finding) for finding in wrong] == []
    assert compared > 900


def test_a_sentence_is_found_across_lines_and_every_row_of_a_table_is_compared(tmp_path: Path) -> None:
    wrong, without, compared = check(project(tmp_path), tmp_path)
    assert (wrong, without, compared) == ([], [], 5)


def test_a_changed_record_names_document_line_stated_and_recorded_value(tmp_path: Path) -> None:
    wrong, _, _ = check(project(tmp_path, frame_ms=1.26), tmp_path)
    assert [str(finding) for finding in wrong] == [
        'README.md:4: states 1.25 in "a frame in {} ms", the record has 1.26 (<speed/frame_ms>)']


def test_a_sentence_that_is_gone_is_named_with_the_table_to_change(tmp_path: Path) -> None:
    wrong, _, _ = check(project(tmp_path, readme=README.replace("in 1.25 ms", "of 1.25 ms")), tmp_path)
    assert str(wrong[0]) == 'README.md:1: no longer says "a frame in {} ms"; change its line in figures.toml'
    assert str(wrong[1]).startswith("README.md:4: 1.25 has no record: ")


def test_a_figure_without_a_record_is_wrong_where_a_document_is_checked_whole_and_listed_elsewhere(tmp_path: Path) -> None:
    readme = README + "It was 3.1 times as fast.\n"
    wrong, without, _ = check(project(tmp_path, readme=readme), tmp_path)
    assert [str(finding)[:31] for finding in wrong] == ["README.md:8: 3.1 has no record:"]
    assert without == []
    table = read_table(tmp_path / "docs" / "figures.toml")
    loose = check_figures.Table(table.records, table.cited, table.dated, ())
    wrong, without, _ = check(loose, tmp_path)
    assert (wrong, [finding.line for finding in without]) == ([], [8])


def test_a_dated_sentence_must_still_stand(tmp_path: Path) -> None:
    table = project(tmp_path, readme=README.replace("200 MHz", "250 MHz"))
    with pytest.raises(DovetailError, match=r'^figures\.toml: README\.md no longer says "at 200 MHz", which is named as dated$'):
        check(table, tmp_path)


@pytest.mark.parametrize(("stated", "recorded", "equal"), [
    ("2,163", 2163.378, True), ("2,163", 2163.51, False), ("−0.3", -0.33, True), ("1.5e-2", 0.01504, True),
    ("1.5e-2", 0.0156, False), ("90.58", 90.57667, True), ("0.5", 0.45, True), ("5", 4.4, False)])
def test_a_figure_agrees_when_the_record_rounds_to_it(stated: str, recorded: float, equal: bool) -> None:
    assert agrees(stated, recorded) is equal


def test_values_of_records_are_followed_by_name_place_and_all_at_once() -> None:
    records = {"a": {"rows": [{"x": 1.0}, {"x": 3.0}], "by name": {"p": {"x": 5.0}}}}
    assert evaluate("max(<a/rows/*/x> * 2)", records) == 6.0
    assert evaluate("<a/rows/1/x> - <a/by name/p/x>", records) == -2.0
    with pytest.raises(DovetailError, match=r"^the record has no a/rows/2/x: stopped at 2$"):
        evaluate("<a/rows/2/x>", records)
    with pytest.raises(DovetailError, match=r"^there is no record b; records are a$"):
        evaluate("<b/x>", records)


def test_the_script_ends_with_one_where_a_figure_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                        capsys: pytest.CaptureFixture[str]) -> None:
    project(tmp_path, frame_ms=1.3)
    monkeypatch.setattr(check_figures, "TABLE", tmp_path / "docs" / "figures.toml")
    monkeypatch.setattr(check_figures, "check", lambda table: check(table, tmp_path))
    monkeypatch.setattr(sys, "argv", ["check_figures.py", "--json", str(tmp_path / "found.json")])
    assert check_figures.main() == 1
    assert "5 figures compared with records, 2 wrong" in capsys.readouterr().out
    assert json.loads((tmp_path / "found.json").read_text())["compared"] == 5
