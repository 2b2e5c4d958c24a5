"""The studio's page in a browser: main flows, keys, labels, sizes and themes."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path

import pytest

from dovetail.studio.app import StudioServer
from lib.long_network import long_network
from tests.chromium import Browser, Tab, beyond, chromium

pytestmark = pytest.mark.chromium
MODEL = Path(__file__).parents[2] / "examples" / "fashion" / "fashion.onnx"


@pytest.fixture(scope="module")
def server() -> Iterator[StudioServer]:
    """A studio that was started with the bundled network."""
    loop, server = asyncio.new_event_loop(), StudioServer(0, MODEL)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(60)
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture(scope="module")
def address(server: StudioServer) -> str:
    return f"http://127.0.0.1:{server.port}/"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def tab(browser: Browser, address: str) -> Tab:
    """A tab in which the network is planned."""
    tab = browser.tab()
    tab.size(1280)
    tab.open(address)
    _answered(tab, 0)
    return tab


def _answers(tab: Tab) -> int:
    return int(tab.run("document.documentElement.dataset.answers ?? 0"))


def _answered(tab: Tab, before: int) -> None:
    """Wait until a question after so many answers is answered, and none is under way."""
    tab.wait(f"Number(document.documentElement.dataset.answers ?? 0) > {before} && "
             "document.getElementById('main').ariaBusy === 'false'", 120)


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


def test_a_slider_moves_by_keys(tab: Tab) -> None:
    before, answers = _text(tab, "#clock-said"), _answers(tab)
    tab.run("document.getElementById('clock').focus()")
    tab.press("ArrowRight")
    _answered(tab, answers)
    assert _text(tab, "#clock-said") != before
    tab.press("ArrowLeft")
    _answered(tab, answers + 1)
    assert _text(tab, "#clock-said") == before


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


def test_a_card_tells_the_runner_up_the_numbers_and_the_code(tab: Tab) -> None:
    tab.run("document.querySelector('svg.network').focus()")
    tab.press("ArrowRight")
    tab.press("Enter")
    tab.wait("document.querySelector('.layer-card .measure')", 60)
    assert "next best" in _text(tab, ".layer-card .more")
    tab.click(".layer-card .code summary")
    tab.wait("document.querySelector('.layer-card .file')", 60)
    assert "Verilog of the layer by itself" in _text(tab, ".layer-card .code")
    assert "module " in tab.run("document.querySelector('.layer-card .file pre').textContent")
    answers = _answers(tab)
    tab.click(".layer-card .measure")
    _answered(tab, answers)
    tab.wait("document.querySelector('.layer-card .more dl') && !document.querySelector('.layer-card .measure')", 60)
    assert "dB below the signal" in _text(tab, ".layer-card .more")
    assert "synthetic samples" in _text(tab, ".layer-card .more")
    assert beyond(tab) == []


def test_a_layer_is_pinned_by_dragging_it_onto_a_device(tab: Tab) -> None:
    tab.run("document.querySelector('.layer-card .close')?.click(); document.querySelector('[data-zoom=fit]').click()")
    tab.run("document.querySelector('.map-frame').scrollIntoView({ block: 'center' })")
    x, y = tab.run("(() => { const b = document.querySelector('.network .box[data-node=\"0\"]').getBoundingClientRect();"
                   "return [b.left + b.width / 2, b.top + 12]; })()")
    answers = _answers(tab)
    for kind, at in (("mousePressed", (x, y)), ("mouseMoved", (x + 20, y + 20))):
        tab.call("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], button="left", buttons=1, clickCount=1)
    tab.wait("!document.getElementById('tray').hidden")
    assert "conv1" in _text(tab, "#tray")
    x, y = tab.run("(() => { const b = document.querySelector('#tray [data-device=gpu]').getBoundingClientRect();"
                   "return [b.left + b.width / 2, b.top + b.height / 2]; })()")
    for kind in ("mouseMoved", "mouseReleased"):
        tab.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=int(kind == "mouseMoved"), clickCount=1)
    _answered(tab, answers)
    assert "conv1 on gpu" in _text(tab, "#pins")
    assert tab.run("document.getElementById('tray').hidden")
    answers = _answers(tab)
    tab.click("#pins button")
    _answered(tab, answers)


def test_fewer_bits_change_the_plan(tab: Tab) -> None:
    _move(tab, "bits", 2)
    assert _text(tab, "#bits-said") == "4 bits"
    assert tab.run("document.getElementById('wrong').hidden"), _text(tab, "#wrong")
    _move(tab, "bits", 6)
    assert _text(tab, "#bits-said") == "8 bits"


def test_several_frames_are_in_flight_on_the_timeline(tab: Tab) -> None:
    assert "A frame begins every" in _text(tab, "#timeline")
    assert tab.run("document.querySelectorAll('#frames .frame-bar').length") >= 3


def test_another_board_answers_the_same_question_beside(tab: Tab) -> None:
    _set(tab, "#beside", "zcu102")
    tab.wait("Number(document.documentElement.dataset.besides ?? 0) > 0", 120)
    assert "fashion on zcu102" in _text(tab, "#compared thead")
    assert tab.run("document.querySelectorAll('#compared svg.network').length") == 2
    assert beyond(tab) == []
    tab.run("document.documentElement.dataset.besides = 0")
    _move(tab, "clock", 70)
    tab.wait("Number(document.documentElement.dataset.besides) > 0", 120)
    _set(tab, "#beside", "")
    assert "fashion on zcu102" not in _text(tab, "#compared")
    _move(tab, "clock", 50)


def test_the_build_of_a_plan_is_saved(tab: Tab) -> None:
    tab.run("window.clicks = HTMLAnchorElement.prototype.click; HTMLAnchorElement.prototype.click = () => {};"
            "window.made = URL.createObjectURL; URL.createObjectURL = blob => { window.built = blob; return ''; }; 0")
    tab.click("#save-build")
    tab.wait("window.built", 180)
    head = tab.run("built.slice(0, 2).text()")
    names = tab.run("built.text().then(t => ['manifest.json', 'plan.json', 'report.html'].filter(n => t.includes(n)))")
    assert (head, len(names)) == ("PK", 3)
    tab.run("HTMLAnchorElement.prototype.click = clicks; URL.createObjectURL = made; 0")


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
    assert tab.run("document.querySelectorAll('.front-point.accelerator').length") > 0
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


def test_two_tabs_do_not_disturb_each_other(tab: Tab, browser: Browser, address: str) -> None:
    title, lead = _text(tab, "#title"), _text(tab, "#lead")
    other = browser.tab()
    other.open(address)
    _answered(other, 0)
    answers = _answers(other)
    _set(other, "#board", "zcu102")
    _answered(other, answers)
    answers = _answers(tab)
    _set(tab, "#goal", "energy")  # solved again while the other tab has another board
    _answered(tab, answers)
    _set(tab, "#goal", "latency")
    _answered(tab, answers + 1)
    assert (_text(other, "#title"), _text(tab, "#title"), _text(tab, "#lead")) == ("fashion on zcu102", title, lead)


def test_a_tab_that_is_closed_or_loaded_again_leaves_no_process(browser: Browser, server: StudioServer, address: str) -> None:
    before, page = set(server.sessions), browser.tab()
    page.open(address)
    _answered(page, 0)
    (key,) = set(server.sessions) - before
    process = server.sessions[key].worker.process
    page.run("document.getElementById('search').click(); 0")
    page.open(address)
    _answered(page, 0)
    process.join(20)
    assert not process.is_alive()
    assert key not in server.sessions
    page.open("about:blank")
    assert _soon(lambda: set(server.sessions) == before)


def test_a_plan_whose_process_was_killed_is_planned_again(browser: Browser, server: StudioServer, address: str) -> None:
    before, page = set(server.sessions), browser.tab()
    page.open(address)
    _answered(page, 0)
    (key,) = set(server.sessions) - before
    process = server.sessions[key].worker.process
    process.kill()
    process.join()
    page.click("#save-plan")
    page.wait("document.getElementById('wrong').innerText.includes('change anything to plan again')")
    _move(page, "clock", 60)
    assert page.run("document.getElementById('wrong').hidden")
    page.open("about:blank")
    assert _soon(lambda: set(server.sessions) == before)


def test_a_network_chosen_while_another_is_searched_takes_its_place(browser: Browser, server: StudioServer, address: str) -> None:
    before, page = set(server.sessions), browser.tab()
    page.open(address)
    _answered(page, 0)
    page.run("document.getElementById('search').click(); 0")
    answers = _answers(page)
    _set(page, "#network", "squeezenet1.1")
    _answered(page, answers)
    assert _text(page, "#title") == "squeezenet1.1 on tx2-c10gx"
    assert page.run("document.getElementById('wrong').hidden")
    page.open("about:blank")
    assert _soon(lambda: set(server.sessions) == before)


def _soon(held: Callable[[], bool]) -> bool:
    end = time.monotonic() + 30
    while not held() and time.monotonic() < end:
        time.sleep(0.05)
    return held()


STRANGER = b"""<!doctype html><meta charset=utf-8><title>stranger</title><script type="module">
const studio = location.search.slice(1);
const tried = async (what) => { try { return String(await what()); } catch { return "refused"; } };
const call = (path, more) => tried(async () => (await fetch(studio + path, more)).type);
const loads = (tag, name, path) => new Promise(done => { const e = document.createElement(tag); e[name] = studio + path;
  e.onload = () => done("loaded"); e.onerror = () => done("refused"); document.body.append(e); });
window.found = [await call("api/session", { method: "POST" }), await call("api/choices"),
  await call("api/live", { method: "POST", headers: { "X-Dovetail-Session": "x" }, body: "{}" }),
  await loads("script", "src", "studio.js"),
  await loads("img", "src", "api/choices"), await tried(async () => { const w = document.createElement("iframe"); w.src = studio;
    document.body.append(w); await new Promise(done => { w.onload = done; }); return w.contentDocument ? "read" : "refused"; })];
window.blind = await call("api/session", { method: "POST", mode: "no-cors" });
</script><body></body>"""


def test_a_strangers_page_can_call_nothing(tab: Tab, browser: Browser, server: StudioServer, address: str) -> None:
    class Stranger(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(STRANGER)

        def log_message(self, *_: object) -> None:
            pass

    before = set(server.sessions)
    with ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        page = browser.tab()
        page.open(f"http://127.0.0.1:{site.server_address[1]}/?{address}")
        page.wait("window.blind")
        assert page.run("found") == ["refused"] * 6
        site.shutdown()
    assert set(server.sessions) == before  # a blind call opened none


@pytest.mark.deep("plans a network of a thousand layers")
def test_a_thousand_layers_are_searched_walked_and_shown(browser: Browser, address: str, tmp_path: Path) -> None:
    tab = browser.tab()
    tab.size(1280)
    tab.open(address)
    _answered(tab, 0)
    (tmp_path / "long.onnx").write_bytes(long_network(1000))
    chosen = tab.call("DOM.querySelector", nodeId=tab.call("DOM.getDocument")["root"]["nodeId"], selector="#upload")
    answers = _answers(tab)
    tab.call("DOM.setFileInputFiles", nodeId=chosen["nodeId"], files=[str(tmp_path / "long.onnx")])
    tab.wait(f"Number(document.documentElement.dataset.answers) > {answers}", 240)
    assert _text(tab, "#title") == "long on tx2-c10gx"
    assert tab.run("document.querySelectorAll('svg.network > .view > .group').length") <= 24
    tab.run("document.querySelector('.find').focus()")
    tab.type("features.150/conv/conv.2")
    tab.press("Enter")
    assert "features.150/conv/conv.2" in _text(tab, ".layer-card strong")
    for width, dark in ((1280, False), (390, True)):
        tab.size(width, dark=dark)
        assert beyond(tab) == [], width
    assert tab.said == []
