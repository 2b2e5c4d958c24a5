"""The studio as a hand uses it: how long a slider takes to a new plan, how hostile uploads end, how soon a page is painted.

`python bench/studio.py [--part slider|uploads|report] --json FILE`, all parts unless told. FILE keeps what other parts wrote.
`slider`: headless Chromium moves every slider of two networks on their boards to seeded places, with the first plan drawn; from
the event of the slider to the painted verdict, figures and map, or to the sentence that there is no plan. `cpu` is what worker
and browser computed in that time, whoever else used the machine. `uploads`: a thousand files that were mutated, cut or
made up, each followed by the question whether the server still answers; then the model itself is planned.
`report`: a report of a thousand layers is written, its size taken, and the first contentful paint read from the browser.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np

from dovetail import __version__
from dovetail.files import replace_text
from dovetail.studio.app import SESSION, StudioServer
from lib.chromium import Tab, chromium
from lib.long_network import long_network

EXAMPLE = Path(__file__).parents[1] / "examples" / "fashion" / "fashion.onnx"
NETWORKS = (("resnet18", "tx2-c10gx", 1.0), ("mobilenet-v2", "zcu102", 3.0))
"""Networks of the zoo, their boards, and the seconds that 95 of 100 moves may take."""
SLIDERS = {"clock": (5, 95), "bandwidth": (5, 95), "fill": (35, 95), "thrift": (0, 100), "max_latency_ms": (35, 100),
           "max_energy_mj": (35, 100), "min_fps": (0, 60)}
"""Sliders with the places they are moved between, in parts of a hundred."""
MOVES = 8
"""Of every slider."""
UPLOADS = 1000
LAYERS = 1000
READY = "document.documentElement.dataset.answers"


@contextmanager
def studio() -> Iterator[tuple[StudioServer, str]]:
    """A studio in a thread of its own, with its address."""
    loop, server = asyncio.new_event_loop(), StudioServer(0)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server, asyncio.run_coroutine_threadsafe(server.start(), loop).result(60)
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def opened(tab: Tab, url: str, network: str, board: str) -> None:
    """A network on a board, with its first plan drawn."""
    tab.size(1280)
    tab.open(url)
    tab.wait("document.documentElement.dataset.ready")
    tab.run(f"document.getElementById('board').value = '{board}'; document.getElementById('network').value = '{network}';"
            "document.getElementById('network').dispatchEvent(new Event('change')); 0")
    tab.wait(READY, 600)


MOVE = """new Promise(done => {{
  const [e, root] = [document.getElementById('{slider}'), document.documentElement];
  const [began, plans, answers] = [performance.now(), root.dataset.planned, root.dataset.answers];
  new MutationObserver((_, watch) => {{
    const planned = root.dataset.planned !== plans;
    if (!planned && root.dataset.answers === answers) return;
    watch.disconnect();
    done([(performance.now() - began) / 1000, !planned]);
  }}).observe(root, {{ attributes: true }});
  e.value = {value};
  e.dispatchEvent(new Event('input'));
}})"""


def cpu_s(roots: list[int]) -> float:
    """Seconds of computing of processes and all that they started (Linux)."""
    total, left = 0, list(roots)
    while left:
        pid = left.pop()
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
            for path in Path(f"/proc/{pid}/task").glob("*/children"):
                left += map(int, path.read_text().split())
    return total / os.sysconf("SC_CLK_TCK")


def settled(tab: Tab) -> None:
    """Wait until nothing is under way: a limit that no plan meets is looked at again, with other forms."""
    tab.wait("document.getElementById('main').ariaBusy === 'false'", 120)


def slider_part(_: Any) -> dict[str, Any]:
    """Seconds from a slider's move to a painted answer."""
    draw, found = random.Random(34), {}
    with studio() as (server, url), chromium() as browser:
        tab = browser.tab()
        for network, board, limit_s in NETWORKS:
            opened(tab, url, network, board)
            plans, refusals, computed = list[float](), list[float](), list[float]()
            session = next(reversed(server.sessions.values()))
            pids = [session.worker.process.pid, browser.process.pid]
            for slider, (low, high) in SLIDERS.items():
                for _ in range(MOVES):
                    before = cpu_s(pids)
                    took, refused = tab.run(MOVE.format(slider=slider, value=draw.randint(low, high)))
                    (refusals if refused else plans).append(took)
                    computed += [] if refused else [cpu_s(pids) - before]
                    settled(tab)
                tab.run("document.getElementById('reset').click(); 0")
                settled(tab)
            quantiles = {name: round(float(np.quantile(plans, q)), 3) for name, q in (("p50_s", 0.5), ("p95_s", 0.95))}
            found[network] = {"board": board, "plans": len(plans), **quantiles, "worst_s": round(max(plans), 3),
                              "p95_cpu_s": round(float(np.quantile(computed, 0.95)), 3),
                              "refusals": len(refusals), "worst_refusal_s": round(max(refusals, default=0.0), 3),
                              "limit_s": limit_s, "within": quantiles["p95_s"] < limit_s}
            print(network, json.dumps(found[network]), flush=True)
    return found


def hostile(whole: bytes, draw: random.Random) -> bytes:
    """A file that is cut, made up, mutated, nested, or not a model at all."""
    content, kind = bytearray(whole), draw.randrange(6)
    if kind == 0:
        return bytes(content[:draw.randrange(len(content))])
    if kind == 1:
        return draw.randbytes(draw.randrange(4000))
    if kind == 2:
        return b"\x3a\xff\xff\xff\x7f" * draw.randrange(1, 500)
    if kind == 3:
        return draw.choice([b"<html><script>alert(1)</script>", b"PK\x03\x04", b"\x80\x04cos\nsystem\n", b"{}", b"\0" * 4096,
                            b""])
    start = 0 if kind == 4 else max(0, len(content) - 4000)  # names and operators stand at the ends
    for _ in range(draw.randrange(1, 60)):
        content[start + draw.randrange(4000)] = draw.randrange(256)
    return bytes(content)


def uploads_part(options: argparse.Namespace) -> dict[str, Any]:
    """What became of hostile files."""
    draw, whole = random.Random(34), EXAMPLE.read_bytes()
    statuses, failed = Counter[str](), list[str]()

    async def run(server: StudioServer, url: str) -> dict[str, Any]:
        async with aiohttp.ClientSession(base_url=url, headers={"Origin": url[:-1]}) as http:
            async with http.post("/api/session") as answer:
                key = {SESSION: (await answer.json())["session"]}
            began = time.monotonic()
            for number in range(options.uploads):
                async with http.post("/api/model", data=hostile(whole, draw), headers=key) as answer:
                    told = await answer.json()
                    statuses[str(answer.status)] += 1
                    words = told.get("error", "")
                    if answer.status not in (200, 422) or "Traceback" in words or "\n" in words:
                        failed.append(f"{number}: {answer.status} {words[:200]}")
                async with http.get("/api/choices") as answer:
                    if answer.status != 200:
                        failed.append(f"{number}: the page is gone")
            took = time.monotonic() - began
            async with http.post("/api/model", data=whole, headers=key) as answer:
                failed.extend([] if answer.status == 200 else ["the model itself is refused"])
            async with http.post("/api/live", json={"board": "tx2-c10gx", "goal": "latency"}, headers=key) as answer:
                failed.extend([] if answer.status == 200 else ["the model itself is not planned"])
            left = [str(p) for p in server.root.rglob("*") if p.is_file()]
            session = next(iter(server.sessions.values()))
            return {"uploads": options.uploads, "statuses": dict(sorted(statuses.items())), "failed": failed[:20],
                    "processes_started": session.worker.starts, "files_left": len(left), "seconds": round(took, 1)}

    with studio() as (server, url):
        found = asyncio.run(run(server, url))
    print("uploads", json.dumps(found), flush=True)
    return found


PAINT = """new Promise(done => new PerformanceObserver(list => {
  for (const e of list.getEntries()) if (e.name === 'first-contentful-paint') done(e.startTime / 1000);
}).observe({ type: 'paint', buffered: true }))"""


def report_part(_: Any) -> dict[str, Any]:
    """Size and first paint of reports."""
    with studio() as (server, url), chromium() as browser, tempfile.TemporaryDirectory() as folder:
        tab, path = browser.tab(), Path(folder) / "report.html"
        (server.root / "long.onnx").write_bytes(long_network(LAYERS))
        server.given = server.root / "long.onnx"
        tab.open(url)
        tab.wait(READY, 600)
        session = next(reversed(server.sessions.values()))
        path.write_text(session.ask("report_file", limit_s=120), encoding="utf-8")
        layers, paints = tab.run("document.querySelectorAll('svg.network .box').length"), []
        for _ in range(5):
            tab.open("about:blank")
            tab.open(path.as_uri())
            paints.append(tab.run(PAINT))
        found = {"layers": layers, "bytes": path.stat().st_size, "first_paint_s": [round(p, 3) for p in paints],
                 "within": path.stat().st_size < 5e6 and max(paints) < 1.0}
    print("report", json.dumps(found), flush=True)
    return found


PARTS: Mapping[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "slider": slider_part, "uploads": uploads_part, "report": report_part}


def main() -> int:
    """Measure, and write the record."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--part", choices=PARTS, help="this part alone")
    arguments.add_argument("--uploads", type=int, default=UPLOADS, help="hostile files (default: %(default)s)")
    arguments.add_argument("--note", default="", help="what is to be said of the machine, such as who else uses it")
    arguments.add_argument("--json", type=Path, required=True)
    options = arguments.parse_args()
    known = json.loads(options.json.read_text(encoding="utf-8")) if options.json.exists() else {}
    for name in [options.part] if options.part else PARTS:
        before = round(os.getloadavg()[0], 2)
        known[name] = {"date": datetime.now(UTC).date().isoformat(), "load_average_before": before, "note": options.note,
                       "found": PARTS[name](options)}
        record = {"command": "python bench/studio.py --json FILE",
                  "versions": {"dovetail": __version__, "python": platform.python_version(), "aiohttp": version("aiohttp")},
                  "machine": f"{platform.machine()}, {os.cpu_count()} cores", **{n: known[n] for n in PARTS if n in known}}
        replace_text(options.json, json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
