"""The studio's page in a browser: main flows, keys, labels, sizes and themes."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from dovetail.studio.app import StudioServer
from tests.chromium import Tab, beyond, chromium

pytestmark = pytest.mark.chromium
MODEL = Path(__file__).parents[2] / "examples" / "fashion" / "fashion.onnx"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A studio that was started with the bundled network."""
    loop, server = asyncio.new_event_loop(), StudioServer(0, MODEL)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield asyncio.run_coroutine_threadsafe(server.start(), loop).result(60)
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture(scope="module")
def tab(address: str) -> Iterator[Tab]:
    """A tab in which the network is planned."""
    with chromium() as browser:
        tab = browser.tab()
        tab.size(1280)
        tab.open(address)
        _answered(tab, 0)
        yield tab


def _answers(tab: Tab) -> int:
    return int(tab.run("document.documentElement.dataset.answers ?? 0"))


def _answered(tab: Tab, before: int) -> None:
    """Wait until a question after so many answers is answered, and none is under way."""
    tab.wait(f"Number(document.documentElement.dataset.answers ?? 0) > {before} && "
             "!document.getElementById('status').textContent.startsWith('Planning')", 120)


def _move(tab: Tab, slider: str, part: float) -> None:
    before = _answers(tab)
    _set(tab, f"#{slider}", part, "input")
    _answered(tab, before)


def _set(tab: Tab, selector: str, value: object, event: str = "change") -> None:
    """Give a field a value as a hand would."""
    tab.run(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.value = {json.dumps(value)};"
            f"e.dispatchEvent(new Event('{event}')); }})()")


def _text(tab: Tab, selector: str) -> str:
    found: str = tab.run(f"document.querySelector({json.dumps(selector)}).innerText")
    return found


def test_nothing_is_cut_off_or_overlaps_on_any_screen(tab: Tab) -> None:
    for width, dark in ((390, False), (1280, True), (1920, False)):
        tab.size(width, dark=dark)
        assert beyond(tab) == [], width
    tab.size(1280)
    assert tab.said == []


def test_a_slider_solves_again_and_a_limit_that_cannot_be_met_is_said(tab: Tab) -> None:
    before = _text(tab, "#lead")
    _move(tab, "max_energy_mj", 0)
    assert "raise the limit" in _text(tab, "#wrong")
    assert _text(tab, "#lead") == before
    assert tab.run("document.getElementById('answer').classList.contains('stale')")
    answers = _answers(tab)
    tab.click("#reset")
    _answered(tab, answers)
    assert tab.run("document.getElementById('wrong').hidden")
    _move(tab, "clock", 20)
    assert _text(tab, "#lead") != before
    assert "× 0.44" in _text(tab, "#clock-said") or "× 0.43" in _text(tab, "#clock-said")
    _move(tab, "clock", 50)
    assert _text(tab, "#lead") == before
    tab.said.clear()


def test_a_layer_is_pinned_by_its_card_and_freed_again(tab: Tab) -> None:
    before, answers = _text(tab, "#lead"), _answers(tab)
    tab.run("document.querySelector('svg.network').focus()")
    tab.press("ArrowRight")
    tab.press("Enter")
    assert "conv1" in _text(tab, ".layer-card strong")
    _set(tab, ".layer-card select", "cpu")
    _answered(tab, answers)
    assert "conv1 on cpu" in _text(tab, "#pins")
    assert "around 1 pinned node" in _text(tab, "#verdict-part")
    assert tab.run("document.querySelector('.layer-card select').value") == "cpu"  # the card stays open
    answers = _answers(tab)
    tab.click("#pins button")
    _answered(tab, answers)
    assert _text(tab, "#lead") == before


def test_plans_are_compared_side_by_side(tab: Tab) -> None:
    tab.click("#keep")
    answers = _answers(tab)
    _set(tab, "#goal", "energy")
    _answered(tab, answers)
    rows = tab.run("[...document.querySelectorAll('#compared tr')].map(r => [...r.cells].map(c => c.textContent))")
    assert rows[0] == ["", "fashion on tx2-c10gx, plan 1", "this plan"]
    assert ["Minimised", "latency", "energy"] in rows
    assert tab.run("document.querySelectorAll('#compared svg.network').length") == 2
    assert beyond(tab) == []


def test_a_front_is_found_and_a_point_of_it_taken(tab: Tab) -> None:
    tab.click("#draw-front")
    tab.wait("document.querySelectorAll('.front-point').length > 0", 120)
    tab.wait("!document.getElementById('search').disabled", 60)
    answers = _answers(tab)
    tab.run("document.querySelector('.front-point').focus()")
    tab.press("Enter")
    _answered(tab, answers)
    assert tab.run("document.getElementById('wrong').hidden"), _text(tab, "#wrong")
    assert _text(tab, "#max_energy_mj-said") != "no limit"
    assert tab.run("document.getElementById('goal').value") == "latency"


def test_everything_that_can_be_moved_has_a_name(tab: Tab) -> None:
    tree = tab.call("Accessibility.getFullAXTree")["nodes"]
    named = {"button", "slider", "combobox", "textbox", "searchbox", "link", "checkbox", "spinbutton"}
    nameless = [n for n in tree if not n["ignored"] and n.get("role", {}).get("value", "").lower() in named
                and not n.get("name", {}).get("value")]
    assert nameless == []
    order = tab.run("[...document.querySelectorAll('h1, h2, h3')].filter(e => e.checkVisibility()).map(e => +e.tagName[1])")
    assert order[0] == 1
    assert all(b - a <= 1 for a, b in pairwise(order))


def test_another_file_and_another_board_can_be_chosen_and_the_report_saved(tab: Tab, address: str, tmp_path: Path) -> None:
    document = tab.call("DOM.getDocument")
    chosen = tab.call("DOM.querySelector", nodeId=document["root"]["nodeId"], selector="#upload")
    (tmp_path / "my.onnx").write_bytes(MODEL.read_bytes())
    answers = _answers(tab)
    tab.call("DOM.setFileInputFiles", nodeId=chosen["nodeId"], files=[str(tmp_path / "my.onnx")])
    _answered(tab, answers)
    answers = _answers(tab)
    _set(tab, "#board", "ecp5-85")
    _answered(tab, answers)
    assert _text(tab, "#title") == "my on ecp5-85"
    tab.run("HTMLAnchorElement.prototype.click = () => {};"
            "URL.createObjectURL = blob => { window.saved = blob.text(); return ''; }; 0")
    tab.click("#save-report")
    tab.wait("window.saved")
    assert tab.run("saved").startswith("<!DOCTYPE html>")
    assert tab.said == []
