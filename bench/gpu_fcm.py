"""Networks, pairs of layers and the estimate on a GPU beside cuDNN: a sitting of so many seconds; another one continues it.

`PYTHONPATH=src python bench/gpu_fcm.py --json FILE --seconds 1700 [--in-place 9] [--item "fp16 b64"] [--compile] [--list]`. Needs
torch, triton, onnx and NumPy alone. Measures networks (bench/lib/gpu), pairs of layers, torch.compile, and tiles of networks the
estimate was not fitted to (bench/gpu_estimator.py), most telling first, and writes the file after every measurement. `session` in
it says of every item when it was tried and what came of it. An item is not begun when what it takes, by experience, is no longer
there, is interrupted when it takes four times as long, and is not tried a third time. `--list` says what there is to do and what
is done. `--compile` measures nothing: it compiles all that the items will time, on all processors, which is most of what a
sitting takes otherwise. `--apart` gives every item a process of its own (some seconds each to begin): a kernel that touches
memory not its own ends all that its process has left to do on the GPU. `--merge` puts what FILE holds into the record that comes
with the package, and ends.

int8 needs networks quantized where ONNX Runtime is: `--prepare` writes them to build/gpu_int8, to be taken along.

Without a GPU `--rehearse mobilenet-v1@32` does all of it but torch.compile and tiles with one small network (at 32 x 32 pixels)
in Triton's interpreter: figures of no worth.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

if "--rehearse" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

import triton

from dovetail.errors import DovetailError
from dovetail.gpu.executor import gpu_here, options_of
from dovetail.gpu.launcher import launcher_here
from dovetail.gpu.precompile import CompileJob, precompile
from dovetail.gpu.tuning import IN_PLACE_S, candidates
from dovetail.kernels.lower import lower
from lib.gpu.cases import FIRST, NETWORK, SECOND, UNSEEN
from lib.gpu.estimate import judge
from lib.gpu.networks import KINDS, measure, measure_compiled, opened, prepare, quantized, save
from lib.gpu.pairs import calls_of, measure_pairs, pairs_of
from lib.gpu.record import merge
from lib.gpu.tiles import measure as measure_tiles
from lib.gpu.tiles import to_time
from lib.gpu.timing import gpu_is_here
from lib.zoo_graph import network

PATIENCE = 4.0
"""How much longer than expected an item may take before it is interrupted."""
GRACE_S = 20.0
"""How much longer than an item may take its own process is waited for before it is ended."""
TRIES = 2
UNSEEN_TILES = 8
"""Tiles timed of every kernel the estimate is judged with."""


class TookTooLongError(DovetailError):
    """An item that took too long."""


@dataclass(frozen=True)
class Item:
    """Something to measure: what it takes by experience, and how; a run says whether it is complete."""

    name: str
    expected_s: float
    run: Callable[[dict[str, Any], Path, float], bool]
    jobs: Callable[[], Iterable[CompileJob]] = tuple
    """Every kernel it compiles."""


def on_network(name: str, kind: str, images: int, energy: bool, in_place_s: float, found: dict[str, Any], path: Path,
               until: float) -> bool:
    measure(found, name, kind, images, energy, in_place_s)
    return True


def on_compiled(name: str, images: int, found: dict[str, Any], path: Path, until: float) -> bool:
    """torch.compile beside a network measured before, in the same file."""
    place = found["networks"].get(name.replace("-", "_"), {}).get("fp16", {}).get(f"b{images}")
    if place is None or place["ours_us"] is None:
        return False
    place |= measure_compiled(network(name), "fp16", images, energy=True)
    print(f"{name:20} fp16 b{images:<3} torch.compile {place['compile_us']:.1f} us, compiled in {place['compiling_s']:.0f} s",
          flush=True)
    return True


def on_pairs(name: str, kind: str, images: int, found: dict[str, Any], path: Path, until: float) -> bool:
    return measure_pairs(found, path, network(name), kind, images, until)


def on_tiles(kind: str, cases: Sequence[tuple[str, int]], found: dict[str, Any], path: Path, until: float) -> bool:
    """Tiles into a file beside the other, and how well the estimate ranks them."""
    tiles = path.with_name(f"{path.stem}_tiles_{kind}.json")
    done = measure_tiles(tiles, cases, kind, until, tiles_each=UNSEEN_TILES)
    found.setdefault("estimator", {})[kind] = judged = judge(tiles)
    print(f"estimator {kind}: {judged['tiles']} tiles, Spearman {judged['spearman']:.3f}, first within 5 % for "
          f"{judged['first_within_5_percent']:.0%}, best of {judged['timed_tiles']} for {judged['timed_within_5_percent']:.0%}",
          flush=True)
    return done


def jobs_of_network(name: str, kind: str, images: int) -> list[CompileJob]:
    graph = quantized(name)[0] if kind == "int8" else network(name)
    lowered = lower(graph, KINDS[kind], gpu_here(), images)
    return candidates(launcher_here(KINDS[kind]), (call for ways in options_of(lowered) for *_, call in ways))


def jobs_of_pairs(name: str, kind: str, images: int) -> list[CompileJob]:
    pairs = pairs_of(lower(network(name), KINDS[kind], gpu_here(), images))
    return candidates(launcher_here(KINDS[kind]), calls_of(kind, pairs.values()))


def jobs_of_tiles(kind: str, cases: Sequence[tuple[str, int]]) -> list[CompileJob]:
    launcher = launcher_here(kind)
    return [launcher.described(call, config) for *_, call, tiles in to_time(cases, kind, (), UNSEEN_TILES) for config in tiles]


def on_pairs_of(name: str, kind: str, images: int, expected_s: float) -> Item:
    return Item(f"pairs {kind} b{images}", expected_s, partial(on_pairs, name, kind, images),
                partial(jobs_of_pairs, name, kind, images))


def on_tiles_of(kind: str, cases: Sequence[tuple[str, int]]) -> Item:
    return Item(f"tiles {kind}, unseen", 80, partial(on_tiles, kind, cases), partial(jobs_of_tiles, kind, cases))


def networks(names: Sequence[str], kind: str, batches: Sequence[int], in_place_s: float, energy: bool = False) -> list[Item]:
    """Networks of some batches; compiling, timing tiles and peers takes some seconds besides choosing kernels in their place."""
    aside_s = (30 if kind == "int8" else 14) + (8 if energy else 0)
    return [Item(f"{name} {kind} b{images}", aside_s + in_place_s, partial(on_network, name, kind, images, energy, in_place_s),
                 partial(jobs_of_network, name, kind, images)) for images in batches for name in names]


def items(main: str = NETWORK, first: Sequence[str] = FIRST, second: Sequence[str] = SECOND,
          unseen: Sequence[tuple[str, int]] = UNSEEN, in_place_s: float = IN_PLACE_S) -> list[Item]:
    """Everything, the most telling first; networks whose figures are goals get all of `in_place_s`, others a third of it."""
    less_s = in_place_s / 3
    return [
        *networks([main], "fp16", (1, 64), in_place_s, energy=True),
        *networks(first, "fp16", (1,), in_place_s),
        on_pairs_of(main, "fp32", 1, 60),
        *networks(second[:1], "fp16", (64, 1), less_s),
        *networks(second[1:], "fp16", (1,), less_s),
        *networks([main, *first, *second], "fp16", (8,), less_s),
        *networks(first, "fp16", (64,), in_place_s),
        *networks(second[1:], "fp16", (64,), less_s),
        on_tiles_of("float16", unseen),
        *networks([main], "int8", (1, 64), in_place_s, energy=True),
        *networks([main], "fp32", (1, 64, 8), less_s),
        *networks([main], "tf32", (1, 64), less_s),
        Item("torch.compile b1", 280, partial(on_compiled, main, 1)),
        Item("torch.compile b64", 300, partial(on_compiled, main, 64)),
        on_pairs_of(main, "fp16", 1, 40),
        *networks(first, "int8", (1, 64), less_s),
        *networks([main], "int8", (8,), less_s),
        *networks(first, "fp32", (1, 64, 8), less_s),
        *networks(second, "int8", (1, 64), less_s),
        *networks([*first, *second], "int8", (8,), less_s),
        *networks(second, "fp32", (1, 64, 8), less_s),
        on_tiles_of("int8", unseen),
    ]


@contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Interrupt what takes longer."""
    def stop(number: int, frame: FrameType | None) -> None:
        raise TookTooLongError(f"interrupted after {seconds:.0f} s")
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(1.0, seconds))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def told(reason: Exception) -> str:
    """What went wrong, in a line, and through which functions of benches and package it was reached."""
    own = [f for f in traceback.extract_tb(reason.__traceback__) if "site-packages" not in f.filename]
    way = " > ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in own[1:])
    return f"{type(reason).__name__}: {str(reason).splitlines()[0] if str(reason) else 'nothing said'} (at {way or 'its start'})"


def is_open(held: dict[str, Any], item: Item) -> bool:
    known = held.get(item.name, {})
    return not known.get("done", False) and known.get("tries", 0) < TRIES


def sit(every: Sequence[Item], path: Path, seconds: float, command: str) -> dict[str, Any]:
    """Measure what is open, in order, as long as there is time; the file's content."""
    until = time.perf_counter() + seconds
    found = opened(path, command)
    held: dict[str, Any] = found.setdefault("session", {})
    for item in every:
        left = until - time.perf_counter()
        if not is_open(held, item) or left < min(item.expected_s, seconds):
            continue
        start = time.perf_counter()
        own = held[item.name] = {"tries": held.get(item.name, {}).get("tries", 0) + 1, "done": False}
        save(path, found)  # an item that takes the process down is known by its try
        try:
            with bounded(min(left, PATIENCE * item.expected_s)):
                own["done"] = item.run(found, path, start + min(left, item.expected_s))
                own["tries"] -= 0 if own["done"] else 1  # it ran out of time and goes on where it stopped
        except (DovetailError, triton.TritonError, RuntimeError, ValueError, OSError) as reason:
            own["reason"] = told(reason)
            print(f"{item.name}: {own['reason']}", flush=True)
        own["seconds"] = time.perf_counter() - start
        save(path, found)
    return found


def sit_apart(every: Sequence[Item], path: Path, seconds: float, call: Callable[[Item, float], Sequence[str]]) -> dict[str, Any]:
    """The same, a process for every item that `call` gives the command of; one that ends badly is told, and the next begins."""
    until = time.perf_counter() + seconds
    for item in every:
        left, before = until - time.perf_counter(), session_of(path)
        if not is_open(before, item) or left < min(item.expected_s, seconds):
            continue
        limit = min(left, PATIENCE * item.expected_s) + GRACE_S
        try:
            ended = subprocess.run(call(item, left), timeout=limit, check=False).returncode
            reason = f"its process ended with {ended}" if ended else ""
        except subprocess.TimeoutExpired:
            reason = "its process did not end and was ended"
        tries, own = before.get(item.name, {}).get("tries", 0), session_of(path).get(item.name, {})
        if reason and not own.get("done") and (own.get("tries", 0) <= tries or "reason" not in own):
            print(f"{item.name}: {reason}", flush=True)
            found = json.loads(path.read_text()) if path.is_file() else {"networks": {}}
            found.setdefault("session", {})[item.name] = {"tries": tries + 1, "done": False, "reason": reason}
            save(path, found)
    return session_of(path)


def session_of(path: Path) -> dict[str, Any]:
    """What came of every item so far."""
    held: dict[str, Any] = json.loads(path.read_text()).get("session", {}) if path.is_file() else {}
    return held


def compiled(every: Sequence[Item], seconds: float) -> None:
    """Compile all kernels of items into Triton's cache, on all processors, and time nothing; as many as there is time for."""
    begun, jobs, shown = time.perf_counter(), list[CompileJob](), 0.0
    for item in every:
        print(f"{item.name}: ", end="", flush=True)
        found = list(item.jobs())
        jobs += found
        print(f"{len(found)} kernels", flush=True)

    total, done = len({job.alike for job in jobs}), count(1)

    def told(job: CompileJob) -> None:
        nonlocal shown
        now, number = time.perf_counter() - begun, next(done)
        if number == total or now > shown + 5:
            shown = now
            print(f"{number} of {total} different kernels compiled after {now:.0f} s", flush=True)
    try:
        with bounded(begun + seconds - time.perf_counter()):
            precompile(jobs, done=told)
    except TookTooLongError as reason:
        print(f"{reason}: the rest is compiled when it is measured")


def selected(every: Sequence[Item], wanted: Sequence[str] | None) -> list[Item]:
    """Items that have the words asked for, in the order asked for; all of them in their own order where nothing is."""
    if not wanted:
        return list(every)
    return list({i.name: i for words in wanted for i in every if set(words.split()) <= set(i.name.split())}.values())


def listed(every: Sequence[Item], path: Path) -> str:
    """What there is to do, and what came of it so far."""
    held, lines = session_of(path), []
    for item in every:
        known = held.get(item.name)
        state = "open" if known is None else "done" if known["done"] else known.get("reason", "begun")
        taken = "" if known is None or "seconds" not in known else f", took {known['seconds']:.0f} s"
        lines.append(f"{item.name:32} about {item.expected_s:4.0f} s  {state}{taken}")
    return "\n".join([*lines, f"{sum(i.expected_s for i in every if is_open(held, i)):.0f} s to go"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=1700.0, help="what this sitting may take (default: 1700)")
    parser.add_argument("--in-place", type=float, default=IN_PLACE_S, metavar="SECONDS",
                        help="what choosing kernels inside a network may take: less makes ours slower, never faster")
    parser.add_argument("--item", action="append", metavar="WORDS",
                        help="only items whose name has these words, repeatable; in the order given")
    parser.add_argument("--compile", action="store_true",
                        help="only compile what the items will time, on all processors, so that measuring need not")
    parser.add_argument("--apart", action="store_true", help="every item in a process of its own, so that none ends with another")
    parser.add_argument("--list", action="store_true", help="say what there is to do and what is done, and measure nothing")
    parser.add_argument("--rehearse", metavar="NAME", help="do everything with one small network, without a GPU")
    parser.add_argument("--prepare", action="store_true", help="quantize networks for int8, where ONNX Runtime is, and end")
    parser.add_argument("--merge", action="store_true", help="put what FILE holds into the record of the package, and end")
    options = parser.parse_args()
    if options.merge:
        merge(options.json)
        return
    if options.prepare:
        for one in dict.fromkeys((NETWORK, *FIRST, *SECOND, *(unseen for unseen, _ in UNSEEN))):
            prepare(one)
        return
    name = options.rehearse
    every = items(in_place_s=options.in_place) if name is None else [
        i for i in items(name, (), ()) if not i.name.startswith(("torch.compile", "tiles"))]
    every = selected(every, options.item)
    if options.list:
        print(listed(every, options.json))
        return
    if not gpu_is_here() and name is None:
        raise SystemExit("bench/gpu_fcm.py: PyTorch finds no CUDA GPU; run it on a machine with one, or --rehearse NAME")
    if options.compile:
        compiled(every, options.seconds)
        return
    if options.apart:
        same = [word for given in (("--in-place", str(options.in_place)), ("--rehearse", name)) if given[1] for word in given]
        sit_apart(every, options.json, options.seconds, lambda item, left: [
            sys.executable, __file__, "--json", str(options.json), "--seconds", f"{left:.1f}", *same, "--item", item.name])
    else:
        sit(every, options.json, options.seconds, "PYTHONPATH=src python bench/gpu_fcm.py " + shlex.join(sys.argv[1:]))
    print(listed(every, options.json))


if __name__ == "__main__":
    main()
