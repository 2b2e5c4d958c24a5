"""An inference server under load: what it accepts is right, what it refuses is refused by 503, and nothing is lost.

`python bench/serve.py [--requests N] [--note TEXT] --json FILE`: the bundled example on a CPU behind `dovetail serve`, asked by
`tritonclient` over 32 connections. Requests arrive at random (Poisson) whether or not earlier ones are answered, at 0.7, 1 and 2
times the measured capacity; then at 0.7 times while a worker process is killed every 5 s. Latencies count from the moment a
request is due, and from the moment one of the connections is free for it. Server, worker and client share the machine: where
`sent_per_s` falls behind `due_per_s`, all connections were taken or the client had no time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.http.aio as client
from tritonclient.utils import InferenceServerException

from dovetail import __version__, pipeline
from dovetail.ir import Array
from dovetail.numerics.oracle import session
from dovetail.partition.plan import whole_on
from dovetail.runtime.build import load_build

EXAMPLE = Path(__file__).parents[1] / "examples" / "fashion"
CONNECTIONS = 32
QUEUE, BATCH = 8, 128
"""Requests that wait, and frames of a batch: together fewer requests than connections, so that some can be refused."""
LOADS = (0.7, 1.0, 2.0)
"""Arrivals over capacity."""
KILL_S = 5.0
REQUESTS = 100
"""Different requests."""
FEWEST_FRAMES, MOST_FRAMES = 6, 34
"""Of a request: enough that the build takes longer to compute one than the client to send it."""
FLAT = 1.1
"""Most that the server's memory may grow from the end of the first run to that of the last. Chosen."""


@dataclass
class Outcome:
    """What became of the requests of one run."""

    codes: Counter[str] = field(default_factory=Counter)
    wrong: int = 0
    from_due_s: list[float] = field(default_factory=list)
    """Latencies of answers from the moment that requests were due."""
    from_sent_s: list[float] = field(default_factory=list)
    """The same from the moment that a connection was free for them."""
    last_sent_s: float = 0.0


class Asker:
    """Sends frames by the real client and judges its answers."""

    def __init__(self, to: client.InferenceServerClient, requests: list[Array], wanted: list[Array],
                 ports: tuple[str, str]) -> None:
        self.to, self.wanted, self.output, self.free = to, wanted, ports[1], asyncio.Semaphore(CONNECTIONS)
        self.inputs = []
        for frames in requests:
            one = client.InferInput(ports[0], frames.shape, "FP32")
            one.set_data_from_numpy(frames)
            self.inputs.append([one])

    async def ask(self, number: int, due_s: float, outcome: Outcome) -> None:
        """One request: 200 and right, refused with a code, or lost."""
        which = number % len(self.inputs)
        try:
            async with self.free:
                sent_s = outcome.last_sent_s = time.monotonic()
                found = (await self.to.infer("fashion", self.inputs[which])).as_numpy(self.output)
        except InferenceServerException as refused:
            outcome.codes[str(refused.status())] += 1
            return
        except (OSError, TimeoutError, client.aiohttp.ClientError) as error:
            outcome.codes[f"lost: {type(error).__name__}"] += 1
            return
        outcome.codes["200"] += 1
        outcome.wrong += not np.array_equal(found, self.wanted[which])
        outcome.from_due_s.append(time.monotonic() - due_s)
        outcome.from_sent_s.append(time.monotonic() - sent_s)


async def capacity(asker: Asker, requests: int) -> float:
    """Answers per second to as many clients as the queue holds, each with one request after another."""
    outcome, numbers, began = Outcome(), iter(range(requests)), time.monotonic()

    async def one_by_one() -> None:
        for number in numbers:
            await asker.ask(number, time.monotonic(), outcome)

    await asyncio.gather(*(one_by_one() for _ in range(QUEUE)))
    return outcome.codes["200"] / (time.monotonic() - began)


async def arrivals(asker: Asker, requests: int, per_s: float, seed: int, at_middle: Callable[[], None]) -> tuple[Outcome, float]:
    """Requests that arrive at random at a rate; the outcome, and the seconds from the first arrival to the last answer."""
    outcome, tasks, began = Outcome(), [], time.monotonic()
    due = began + np.cumsum(np.random.default_rng(seed).exponential(1 / per_s, requests))
    for number, at in enumerate(due.tolist()):
        if (early := at - time.monotonic()) > 0:
            await asyncio.sleep(early)
        tasks.append(asyncio.create_task(asker.ask(number, at, outcome)))
        if number == requests // 2:
            at_middle()
    await asyncio.gather(*tasks)
    outcome.last_sent_s -= began
    return outcome, time.monotonic() - began


def children(pid: int) -> list[int]:
    """Processes that a process has started (Linux)."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, path.read_text().split())
    return found


def workers(server: int) -> list[int]:
    """The worker processes of a server, which its fork server has started."""
    return [worker for child in children(server) for worker in children(child)]


def resident_mb(pid: int) -> float:
    """Resident memory of a process in MB (Linux)."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)


def memory(server: int) -> dict[str, float]:
    """That of a server and of its workers."""
    total = 0.0
    for worker in workers(server):
        with suppress(OSError):  # killed meanwhile
            total += resident_mb(worker)
    return {"server_mb": resident_mb(server), "workers_mb": round(total, 1)}


async def kill_workers(server: int, killed: list[int]) -> None:
    """Kill a worker every `KILL_S`, until cancelled."""
    while True:
        await asyncio.sleep(KILL_S)
        for worker in workers(server)[:1]:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
                killed.append(worker)


def quantiles(values_s: list[float]) -> dict[str, float]:
    p50, p99 = np.quantile(values_s or [0.0], [0.5, 0.99])
    return {"p50_ms": round(float(p50) * 1e3, 2), "p99_ms": round(float(p99) * 1e3, 2)}


async def judged(load: float, per_s: float, run: Callable[[Callable[[], None]], Awaitable[tuple[Outcome, float]]], server: int) \
        -> dict[str, Any]:
    """One run's figures."""
    seen = {"start": memory(server)}
    outcome, took_s = await run(lambda: seen.update(middle=memory(server)))
    seen["end"] = memory(server)
    codes = dict(sorted(outcome.codes.items()))
    return {"load": load, "due_per_s": round(per_s, 1), "sent_per_s": round(outcome.codes.total() / outcome.last_sent_s, 1),
            "took_s": round(took_s, 1), "codes": codes, "wrong": outcome.wrong,
            "lost": sum(n for code, n in codes.items() if code.startswith("lost")),
            "other_refusals": sum(n for code, n in codes.items() if code not in ("200", "503") and not code.startswith("lost")),
            "answered_per_s": round(codes.get("200", 0) / took_s, 1),
            "from_due": quantiles(outcome.from_due_s), "from_sent": quantiles(outcome.from_sent_s), "memory": seen}


async def measure(url: str, server: int, asked: list[Array], wanted: list[Array], ports: tuple[str, str], requests: int) \
        -> dict[str, Any]:
    """All runs against a server."""
    async with client.InferenceServerClient(url.removeprefix("http://"), conn_limit=CONNECTIONS) as to:
        asker = Asker(to, asked, wanted, ports)
        await capacity(asker, max(requests // 20, 10))  # warm
        most_per_s = await capacity(asker, max(requests // 5, 10))
        print(f"capacity {most_per_s:.1f}/s", flush=True)
        runs = []
        for seed, load in enumerate(LOADS):
            runs.append(await judged(load, load * most_per_s,
                                     lambda tell, load=load, seed=seed: arrivals(asker, requests, load * most_per_s, seed, tell),
                                     server))
            print(json.dumps(runs[-1]), flush=True)
        killed: list[int] = []
        killer = asyncio.create_task(kill_workers(server, killed))
        with_kills = await judged(LOADS[0], LOADS[0] * most_per_s,
                                  lambda tell: arrivals(asker, requests, LOADS[0] * most_per_s, len(LOADS), tell), server)
        killer.cancel()
        with_kills |= {"kill_every_s": KILL_S, "killed": len(killed)}
        print(json.dumps(with_kills), flush=True)
    return {"capacity_per_s": round(most_per_s, 1), "runs": runs, "with_kills": with_kills}


def bare_loop(model: Path, asked: list[Array], requests: int) -> dict[str, float]:
    """ONNX Runtime on the same network, opened as users open it on one thread, one request after another in one process."""
    runner, taken_s = session(model.read_bytes(), optimised=True), []
    name = runner.get_inputs()[0].name
    for number in range(requests):
        began = time.monotonic()
        runner.run(None, {name: asked[number % len(asked)]})
        taken_s.append(time.monotonic() - began)
    return quantiles(taken_s)


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A server of a build; SIGTERM ends it, and it must end well."""
    told = folder.with_suffix(".json")
    process = subprocess.Popen([sys.executable, "-m", "dovetail", "serve", str(folder), "--port", "0", "--json", str(told),
                                "--queue", str(QUEUE), "--max-batch", str(BATCH)])
    try:
        while not told.exists():
            assert process.poll() is None, "the server did not start"
            time.sleep(0.05)
        yield json.loads(told.read_text(encoding="utf-8"))["url"], process
        process.send_signal(signal.SIGTERM)
        process.wait(120)
    finally:
        process.kill()


def main() -> int:
    """Measure, and write the record."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--requests", type=int, default=10_000, help="of each run (default: %(default)s)")
    arguments.add_argument("--note", default="", help="what is to be said of the machine, such as who else uses it")
    arguments.add_argument("--json", type=Path, required=True)
    options = arguments.parse_args()
    busy = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "fashion"
        nodes = {n.name: whole_on("cpu") for n in pipeline.decide_numbers(EXAMPLE / "fashion.onnx").graph.nodes}
        pipeline.compile(EXAMPLE / "fashion.onnx", "tx2-c10gx", folder, assignment=nodes,
                         calibration=EXAMPLE / "calibration.npz", verify=False)
        build = load_build(folder)
        rng, shape = np.random.default_rng(0), build.graph.shape(build.graph.inputs[0])[1:]
        asked = [rng.random((int(count), *shape), dtype=np.float32)
                 for count in rng.integers(FEWEST_FRAMES, MOST_FRAMES + 1, REQUESTS)]
        wanted = [np.asarray(build.run(frames)) for frames in asked]
        with served(folder) as (url, process):
            found = asyncio.run(measure(url, process.pid, asked, wanted, (build.graph.inputs[0], build.graph.outputs[0]),
                                        options.requests))
        found["onnxruntime_loop"] = bare_loop(folder / "model.onnx", asked, min(options.requests, 2000))
    runs = [*found["runs"], found["with_kills"]]
    grown = runs[-1]["memory"]["end"]["server_mb"] / runs[0]["memory"]["end"]["server_mb"]
    record = {
        "command": f"python bench/serve.py --requests {options.requests} --json FILE",
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {"dovetail": __version__, "python": platform.python_version()}
        | {name: version(name) for name in ("aiohttp", "tritonclient", "onnxruntime", "numpy")},
        "machine": f"{platform.machine()}, {os.cpu_count()} cores", "load_average_before": round(busy, 2), "note": options.note,
        "model": "examples/fashion/fashion.onnx, all on the CPU", "connections": CONNECTIONS, "queue": QUEUE, "max_batch": BATCH,
        "frames_per_request": [FEWEST_FRAMES, MOST_FRAMES],
        "requests_per_run": options.requests, **found,
        "wrong": sum(r["wrong"] for r in runs), "lost": sum(r["lost"] for r in runs),
        "other_refusals": sum(r["other_refusals"] for r in runs), "server_exit": process.returncode,
        "memory_grown": round(grown, 3), "memory_flat": grown <= FLAT}
    options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    good = not (record["wrong"] or record["lost"] or record["other_refusals"] or process.returncode) and record["memory_flat"]
    print("all right" if good else "NOT all right")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
