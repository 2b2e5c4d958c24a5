"""The page as a reader meets it, in a real browser."""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
import report_sample as sample
from report_browser import browse, parse

from dovetail.errors import BuildError, UsageError
from dovetail.partition.plan import FEWER, Goal, LimitedBy, Plan, Status
from dovetail.platform.load import load_platform
from dovetail.report.collect import collect
from dovetail.report.html import render, rounded, write_report


def _report(extras: dict[str, object] | None = None, plan: Plan | None = None) -> dict[str, Any]:
    return collect(sample.graph(), plan or sample.plan(), sample.platform(), sample.timeline(), extras or sample.extras())


def _words(page: str) -> str:
    """What a reader sees, spaces evened out."""
    main = parse(page).one("body")
    hidden = "".join(script.text for script in main.all("script"))
    return re.sub(r"\s+", " ", main.text.replace(hidden, "") if hidden else main.text)


@pytest.mark.chromium
def test_the_console_check_can_fail(tmp_path: Path) -> None:
    _, console = browse("<!DOCTYPE html><title>x</title><script>console.error('broken')</script>", tmp_path)
    assert any("broken" in line for line in console)


@pytest.mark.chromium
def test_the_page_opens_without_a_word_on_the_console_and_shows_every_layer(tmp_path: Path) -> None:
    document, console = browse(render(_report()), tmp_path)
    assert console == []
    page = parse(document)
    assert page.one("html").attributes["data-ready"] == "true"
    for index, (name, op, _) in enumerate(sample.LAYERS):
        box = page.one("a", class_="box", data_node=str(index))
        assert box.attributes["aria-label"].startswith(f"{name}: {op.kind}, output ")
        assert page.one("tr", id=f"layer-{index}").all("th")[0].text == name
    assert len(page.all("rect", class_="task")) == len(sample.timeline().tasks)


@pytest.mark.chromium
def test_no_part_of_the_page_is_wider_than_a_phone(tmp_path: Path) -> None:
    charted = collect(sample.graph(), sample.plan(), load_platform("tx2-c10gx"), sample.timeline(), sample.extras())
    frame = f'<iframe style="width:400px;height:900px" srcdoc="{html.escape(render(charted))}"></iframe>'
    measure = """<script>document.querySelector("iframe").onload = (loaded) => {
      const page = loaded.target.contentDocument.documentElement;
      document.documentElement.dataset.widths = `${page.scrollWidth} ${page.clientWidth}`; }</script>"""
    document, _ = browse(f"<!DOCTYPE html><title>x</title>{frame}{measure}", tmp_path)
    needed, given = map(int, parse(document).one("html").attributes["data-widths"].split())
    assert needed <= given <= 400


@pytest.mark.chromium
def test_a_divided_layer_shows_its_parts_in_proportion(tmp_path: Path) -> None:
    document, _ = browse(render(_report()), tmp_path)
    page = parse(document)
    gpu, fpga = page.one("a", class_="box", data_node="5").all("rect", class_="part")
    assert (gpu.attributes["data-device"], fpga.attributes["data-device"]) == ("gpu", "fpga")
    assert float(gpu.attributes["width"]) / float(fpga.attributes["width"]) == pytest.approx(48 / 16, rel=1e-3)
    assert float(fpga.attributes["x"]) == pytest.approx(float(gpu.attributes["x"]) + float(gpu.attributes["width"]), abs=0.02)
    assert gpu.attributes["class"] != fpga.attributes["class"]
    assert "gpu 48 of 64 (75.0 %), fpga 16 of 64 (25.0 %) by output channels" in page.one(
        "a", class_="box", data_node="5").attributes["aria-label"]
    for index in (0, 6, 9):
        assert len(page.one("a", class_="box", data_node=str(index)).all("rect", class_="part")) == 1


@pytest.mark.chromium
def test_pointing_sorting_and_zooming_work(tmp_path: Path) -> None:
    driver = """<script>
      const note = (key, value) => { document.documentElement.dataset[key] = value; };
      const box = document.querySelector('a.box[data-node="5"]');
      box.dispatchEvent(new PointerEvent("pointerenter"));
      note("tip", document.getElementById("tip").hidden ? "hidden" : document.getElementById("tip").textContent);
      note("lit", document.querySelectorAll(".lit").length);
      box.dispatchEvent(new PointerEvent("pointerleave"));
      note("after", String(document.getElementById("tip").hidden));
      const names = () => [...document.querySelectorAll("#plan-table tbody tr")].map((row) => row.id).join(" ");
      const heading = document.querySelectorAll("#plan-table thead button")[4];
      heading.click(); note("up", names()); heading.click(); note("down", names());
      const zoom = document.getElementById("zoom"); zoom.value = 4; zoom.dispatchEvent(new Event("input"));
      note("width", document.getElementById("gantt").style.width);
    </script>"""
    page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", render(_report())).replace(
        "</body>", driver + "</body>"
    )
    document, console = browse(page, tmp_path)
    assert console == []
    seen = parse(document).one("html").attributes
    assert "widen" in seen["data-tip"]
    assert "gpu 48 of 64 (75.0 %), fpga 16 of 64 (25.0 %) by output channels" in seen["data-tip"]
    assert int(seen["data-lit"]) >= 4  # the box, its row, and its tasks on both devices
    assert seen["data-after"] == "true"
    costs = {f"layer-{i}": c.latency_s for i, c in enumerate(sample.plan().nodes)}
    assert [costs[i] for i in seen["data-up"].split()] == sorted(costs.values())
    assert [costs[i] for i in seen["data-down"].split()] == sorted(costs.values(), reverse=True)
    assert seen["data-width"] == "400%"


HOSTILE = (
    '</script><script>document.documentElement.dataset.owned="1"</script>',
    '"><img src=x onerror="document.documentElement.dataset.owned=1">',
    "<!--<script>",
    "{{json}}{{style}}",
    "' onfocus='document.documentElement.dataset.owned=1' autofocus tabindex='1",
    "</style></svg></title><h1>owned",
    "&lt;b&gt; \x00\x1b[31m \u202eexe.xnno",
    "x" * 400,
    "$(reboot); `id`",
    "\ud800 lone",
)


@pytest.mark.chromium
@pytest.mark.parametrize("with_policy", [True, False])
def test_hostile_names_stay_text(tmp_path: Path, with_policy: bool) -> None:
    name = " ".join(HOSTILE)
    graph, plan = sample.hostile(name)
    extras = sample.extras() | {
        "provenance": {"model_file": name, "model_sha256": name, "versions": {name: name}, "warnings": [name],
                       "commands": [name]},
        "verification": {"equal": False, "frames": 1, "tensors_compared": 1, "first_mismatch": name, "clocks": {}},
        "segments": [{"name": name, "device": name, "backend": name, "nodes": [name], "note": name}],
    }
    written = render(collect(graph, plan, sample.platform(), sample.timeline(), extras))
    parse(written)
    if not with_policy:  # the escapes must hold on their own
        written = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", written)
    document, console = browse(written, tmp_path)
    assert console == []
    page = parse(document)
    assert "data-owned" not in page.one("html").attributes
    assert page.all("img") == []
    assert len(page.all("h1")) == 1
    assert [script.attributes.get("id") for script in page.all("script")] == ["report-details", "report-data", None]
    assert HOSTILE[0] in page.one("h1").text
    assert "\u202e" not in document
    assert "\x00" not in written


@pytest.mark.slow("renders the page with every choice of missing parts")
def test_the_sum_of_the_parts_is_well_formed_whatever_is_missing() -> None:
    full = sample.extras()
    later = ("synthesis", "power", "verification", "measured")
    for size in range(len(later) + 1):
        for missing in combinations(later, size):
            assert parse(render(_report(full | dict.fromkeys(missing)))).tag


def test_a_measured_run_stands_beside_the_plan() -> None:
    page = render(_report())
    assert ("Measured over 64 frames with 8 in flight: 200 frames/s in this machine's time, 17,900 frames/s in virtual time, "
            "by the clocks of simulated boards; planned 18,000 frames/s.") in page.replace("&#x27;", "'").replace("&#39;", "'")
    assert "926 a frame, 813 between frames" in page
    assert "Measured over" not in render(_report(sample.extras() | {"measured": None}))


@pytest.mark.chromium
def test_missing_parts_say_so_and_name_the_command(tmp_path: Path) -> None:
    missing = dict.fromkeys(("synthesis", "power", "verification"))
    document, console = browse(render(_report(sample.extras() | missing)), tmp_path)
    assert console == []
    seen = _words(document)
    for sentence in (
        "not yet verified",
        "Not run. Nothing has been compared with the integer reference yet. Run dovetail verify build to get it.",
        "Not run. No synthesis tool has counted these designs. Run dovetail synth build --family cyclone10gx to get it.",
        "Not run. Energy of this hardware goes by an assumed activity; its toggles have not been counted. "
        "Run dovetail power build to get it.",
    ):
        assert sentence in seen


def test_the_verdict_is_one_true_sentence() -> None:
    assert (
        "Predicted on cpu + gpu + fpga: 2,500 frames/s (−17 to +11 %), 577 µs (−10 to +20 %) and 5.50 mJ (±9.1 %) per frame, at "
        "90 % confidence; 7.11× faster than cpu alone (4.10 ms), 2.81× faster than gpu alone (1.62 ms); proven optimal over all "
        "whole placements and candidate cuts with these engines; limited by classify (14 % of the latency); "
        "bit-exact over 64 frames."
    ) in _words(render(_report()))


def test_what_limits_a_plan_and_what_a_step_up_buys_is_a_card() -> None:
    cards = parse(render(_report())).one("dl", class_="cards").text
    assert "Bottleneckclassify14 % of the latency; a 25 % faster cpu would save 2.95 % of the latency, this plan kept" in cards
    assert "Latency577 µs (−10 to +20 %)" in cards
    assert "Pipelined2,500 frames/s (−17 to +11 %)" in cards
    limit = LimitedBy("resource", "fpga alm", 0.998, 5e-4, "25 % more fpga alm would save at least 13 % of the latency")
    page = parse(render(_report(plan=replace(sample.plan(), limited_by=limit))))
    assert "; limited by fpga alm (99.8 % used); " in page.one(id="verdict").text


def test_a_plan_without_intervals_has_a_verdict_without_errors() -> None:
    old = replace(sample.plan(), intervals={}, limited_by=None, interval_s=0.0, busy_s={})
    assert "Predicted on cpu + gpu + fpga: 577 µs and 5.50 mJ per frame; 7.11×" in _words(render(_report(plan=old)))
    assert "limited by" not in _words(render(_report(plan=old))).lower()


def test_a_figure_that_links_alone_set_is_not_called_exact() -> None:
    linked = replace(sample.plan(), intervals={"interval_s": (400e-6, 400e-6)})
    said = parse(render(_report(plan=linked))).one(id="verdict").text
    assert ": 2,500 frames/s (set by links, which state no error), 577 µs and 5.50 mJ per frame, at 90 % confidence; " in said


def test_frames_are_compared_as_frames() -> None:
    paced = replace(sample.plan(), goal=Goal.THROUGHPUT, objective=400e-6)
    said = parse(render(_report(plan=paced))).one(id="verdict").text
    assert "; 10.2× more frames than cpu alone (244 frames/s), 4.05× more frames than gpu alone (617 frames/s); " in said
    assert "; limited by classify (it sets the pace); " in said


def test_a_bound_over_fewer_candidates_says_so_in_the_verdict() -> None:
    fewer = replace(sample.plan(), notes=(f"bound: holds over all ({FEWER} fewer at 3 of 10 nodes)",))
    assert "proven optimal over some of the whole placements and candidate cuts with" in parse(
        render(_report(plan=fewer))).one(id="verdict").text


def test_a_pinned_plan_is_compared_with_devices_that_keep_no_pins() -> None:
    page = parse(render(_report(plan=replace(sample.plan(), pinned=2))))
    assert "2.81× faster than gpu alone without pins (1.62 ms)" in page.one(id="verdict").text
    assert "gpu alone, without pins" in page.one("dl", class_="cards").text
    rows = page.one(id="baselines").text
    assert "gpu alone1.62 ms" in rows
    assert "balanced, even shares, pinned nodes kept" in rows
    assert "greedy, layer by layer, pinned nodes kept" in rows
    assert "2 of 10 nodes are pinned. Devices alone run all of them themselves; this plan and its bound keep the pins." in rows
    assert "with these engines around 2 pinned nodes; " in page.one(id="verdict").text


def test_a_plan_without_a_choice_is_not_called_optimal() -> None:
    page = parse(render(_report(plan=replace(sample.plan(), pinned=10))))
    assert "every node where it was pinned" in page.one(id="verdict").text
    assert "optimal" not in page.one(id="verdict").text + page.one("dl", class_="cards").text


def test_the_last_bits_of_a_solver_are_no_gap_and_a_real_gap_is_stated() -> None:
    best = sample.plan()
    dusty = replace(best, lower_bound=best.objective * (1 - 1e-12))
    loose = replace(best, lower_bound=best.objective * 0.9, status=Status.FEASIBLE)
    for judged, sentence, card in ((dusty, "proven optimal", "0 %"), (
            loose, "; within 10.0 % of the best possible over all whole placements and candidate cuts with", "10.0 %")):
        page = parse(render(_report(plan=judged)))
        assert sentence in page.one(id="verdict").text
        cards = page.one("dl", class_="cards").text
        assert f"Gap to the bound{card}" in cards
        assert " over all whole placements and candidate cuts with these engines; solver exact" in cards


def test_what_thrift_gave_up_stands_in_the_verdict_beside_the_proof() -> None:
    best = sample.plan()
    thrifty = replace(best, objective=best.objective * 1.04, best_objective=best.objective, lower_bound=best.objective,
                      status=Status.FEASIBLE)
    page = parse(render(_report(plan=thrifty)))
    assert "with these engines before 4.00 % was given up for area" in page.one(id="verdict").text
    assert "before 4.00 % was given up for area" in page.one("dl", class_="cards").text


def test_layers_and_what_the_plan_adds_make_the_whole() -> None:
    best = sample.plan()
    page = parse(render(_report(plan=replace(best, latency_s=best.latency_s + 1e-4))))
    totals = [[cell.text for cell in row.children][:2] for row in page.one(id="plan-table").one("tfoot").children]
    assert totals == [["All layers", "577 µs"], ["Results to the host", "100 µs"], ["Whole plan", "677 µs"]]


def test_a_mismatch_is_the_first_thing_said() -> None:
    wrong = {"equal": False, "frames": 64, "tensors_compared": 3, "first_mismatch": "widen.y[0, 3, 1, 2] is 8", "clocks": {}}
    page = parse(render(_report(sample.extras() | {"verification": wrong})))
    assert "NOT bit-exact: widen.y[0, 3, 1, 2] is 8." in page.one(id="verdict").text
    assert "bad" in page.one(id="verdict").attributes["class"]


@pytest.mark.parametrize(("goal", "words"), [
    (Goal.ENERGY, "2.81× less energy than gpu alone (1.62 mJ)"),
    (Goal.EDP, "per frame, energy-delay product 577 µJ·s (−10 to +20 %), at 90 % confidence; ")])
def test_the_objective_is_in_the_unit_of_its_goal(goal: Goal, words: str) -> None:
    report = _report(plan=replace(sample.plan(), goal=goal))
    assert words in _words(render(report))


def test_counts_for_another_family_are_not_drawn_against_this_budget() -> None:
    foreign = {"device": "fpga", "segment": "fpga0", "family": "ecp5", "tool": "yosys", "resources": {"alm": 99_999}, "notes": []}
    page = parse(render(_report(sample.extras() | {"synthesis": [foreign]})))
    assert "99,999" not in page.one(id="resources").text
    assert "99,999 alm" in page.one(id="designs").text


def test_assumed_numbers_are_listed_with_their_values() -> None:
    listed = next(t for t in parse(render(_report())).all("table") if "nobody has published" in t.one("caption").text)
    rows = [[cell.text for cell in row.children] for row in listed.one("tbody").children]
    assert rows == [
        ["cpu", "idle_power_w", "0.500", "one core awake"],
        ["fpga", "clock_hz", "150,000,000", "none given"],
        ["link pcie", "energy_j_per_byte", "6.00e-11", "none given"],
    ]


def test_the_page_needs_nothing_from_outside() -> None:
    written = render(_report())
    page = parse(written)
    assert [e.tag for e in page.all() if "src" in e.attributes] == []
    assert {e.attributes["href"] for e in page.all("link")} == {"data:,"}
    outside = [e.attributes["href"] for e in page.all("a") if not e.attributes["href"].startswith("#")]
    assert outside == ["trace.json", "https://ui.perfetto.dev"]
    assert not re.search(r"@import|url\((?!#)", written)
    assert "default-src 'none'" in html.unescape(written)


def test_ids_are_unique_and_links_lead_somewhere() -> None:
    page = parse(render(_report()))
    ids = [e.attributes["id"] for e in page.all() if "id" in e.attributes]
    assert len(ids) == len(set(ids))
    for element in page.all():
        if element.attributes.get("href", "").startswith("#"):
            assert element.attributes["href"][1:] in ids
        assert element.attributes.get("aria-labelledby", ids[0]) in ids
    assert {m for m in re.findall(r"url\(#([\w-]+)\)", render(_report()))} <= set(ids)


def test_everything_that_is_drawn_is_also_said() -> None:
    page = parse(render(_report()))
    levels = [int(e.tag[1]) for e in page.all() if re.fullmatch(r"h[1-6]", e.tag)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    for listing in page.all("table"):
        assert listing.one("caption").text
        assert all(th.attributes["scope"] in ("row", "col") for th in listing.all("th"))
    for drawing in page.one("body").all("svg"):
        if drawing.attributes.get("role"):
            assert drawing.attributes["aria-label"]
            assert all(a.attributes["aria-label"] for a in drawing.all("a"))


def _luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground_as_wcag_aa_asks(scheme: str) -> None:
    style = parse(render(_report())).one("style").text
    light, dark = (
        dict(re.findall(r"--(\w[\w-]*): (#[0-9a-f]{6})", block)) for block in re.findall(r":root \{(.*?)\}", style, re.S)[:2]
    )
    colour = light if scheme == "light" else dark
    texts = [(ink, ground) for ink in ("ink", "muted", "accent") for ground in ("paper", "card", "soft")]
    texts += [("on", d) for d in ("cpu", "gpu", "fpga", "array", "spare1", "spare2", "spare3", "link")]
    texts += [("ink", g) for g in ("good-soft", "bad-soft", "warn-soft")] + [
        ("warn", "warn-soft"),
        ("bad", "bad-soft"),
        ("good", "card"),
        ("bad", "card"),
    ]
    for ink, ground in texts:
        bright, dim = sorted((_luminance(colour[ink]), _luminance(colour[ground])), reverse=True)
        assert (bright + 0.05) / (dim + 0.05) >= 4.5, f"{ink} on {ground}"


def test_what_is_collected_survives_json_and_renders_the_same() -> None:
    report = _report()
    again = json.loads(json.dumps(report, allow_nan=False))
    assert again == report
    assert render(again) == render(report)


def test_the_report_inside_the_page_is_the_report() -> None:
    held = json.loads(gzip.decompress(base64.b64decode(parse(render(_report())).one(id="report-data").text)))
    assert held == rounded(_report())
    assert held["plan"]["latency_s"] == pytest.approx(_report()["plan"]["latency_s"], rel=1e-5)


def test_what_json_cannot_hold_is_refused_by_place() -> None:
    with pytest.raises(
        BuildError,
        match=r"^report\.provenance\.versions\.x: a object cannot stand in a report; give text, numbers, lists or mappings$",
    ):
        _report(sample.extras() | {"provenance": {"versions": {"x": object()}}})


def test_writing_replaces_the_file_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_text("old")
    write_report(target, _report())
    assert target.read_text(encoding="utf-8") == render(_report())
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"report\.html: cannot be written, no such file or directory; give a path in an existing folder"
    ):
        write_report(tmp_path / "none" / "report.html", _report())
