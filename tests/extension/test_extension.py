"""The lists in docs/architecture.md of what a change touches, checked by making the change in a copy."""

import pytest

from tests.extension.changes import Change, edited, listed, stands_for

TITLES = {"operator": "Add an operator", "board": "Add a board", "solver": "Add a solver", "kernel": "Add a GPU kernel",
          "engine": "Add an FPGA engine"}
"""Headings of docs/architecture.md by change."""


@pytest.mark.parametrize("name", ["board", "solver", pytest.param(
    "operator", marks=pytest.mark.slow("compiles a copy of the package and plans with another operator")), pytest.param(
    "kernel", marks=pytest.mark.slow("runs a kernel in Triton's interpreter")), pytest.param(
    "engine", marks=pytest.mark.verilator)])
def test_a_change_touches_the_files_that_the_document_lists(name, tmp_path):
    change = Change(name)
    changed, patterns = change.make(tmp_path), listed(TITLES[name])
    assert {p for p in patterns if not any(stands_for(p, f) for f in changed)} == set(), "listed, and not changed"
    assert {f for f in changed if not any(stands_for(p, f) for p in patterns)} == set(), "changed, and not listed"
    change.check(tmp_path)


def test_files_are_read_from_the_bullets_below_a_heading(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Changes\n- `other.py`\n## Add a thing\nWords.\n- `src/dovetail/things/NAME.py`: new, not `shape.py`\n"
                    "- `things/table.py`\n## Next\n- `more.py`\n", encoding="utf-8")
    assert listed("Add a thing", page) == ["things/NAME.py", "things/table.py"]
    assert stands_for("things/NAME.py", "things/new_one.py")
    assert not stands_for("things/NAME.py", "things/deeper/one.py")


@pytest.mark.parametrize(("text", "changed"), [
    ('TABLE = {"a": 1}\n', 'TABLE = {"a": 1, "b": 2}\n'),
    ('TABLE: dict[str, int] = {\n    "a": 1,\n}\nREST = 1\n', 'TABLE: dict[str, int] = {\n    "a": 1, "b": 2}\nREST = 1\n'),
    ("TABLE = {}\n", 'TABLE = { "b": 2}\n'),
])
def test_an_entry_is_put_at_the_end_of_a_literal_table(text, changed):
    assert edited(text, {"table": "TABLE", "entry": '"b": 2'}) == changed
