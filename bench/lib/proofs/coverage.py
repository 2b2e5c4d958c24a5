"""What of the generated Verilog simulations execute: lines, and bits that rise and fall, by kind of module."""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.fpga.design import Design
from dovetail.fpga.toolchain.simulate import simulate_many
from dovetail.ir import Array, Graph
from dovetail.numerics.reference import run_integer

RECORD = re.compile(r"C '(?P<what>.*)' (?P<count>\d+)$")
SEEDS = (None, 1)
"""Without stalls, and with them."""
NETWORKS = 25
Job = tuple[Graph, Design, Mapping[str, Array]]


def coverage() -> dict[str, Any]:
    """Random networks as the tests draw them, and the tests' blocks of reusable engines, each without and with stalls."""
    root = str(Path(__file__).parents[3])
    if root not in sys.path:
        sys.path.insert(0, root)
    from tests.fpga.random_bundles import draw
    from tests.fpga.reusable_blocks import cases
    from tests.fpga.test_reusable import run_of

    start = time.perf_counter()
    networks = [draw(number) for number in range(NETWORKS)]
    jobs: list[Job] = [(n.graph, n.design, n.inputs) for n in networks]
    blocks = [run_of(name, *case) for name, case in cases().items()]
    jobs += [(graph, block.design, {block.program.layers.entry: inputs[graph.inputs[0]]}) for graph, block, inputs in blocks]
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    never: Counter[str] = Counter()
    for at in range(0, len(jobs), NETWORKS):
        some = jobs[at:at + NETWORKS]
        print(f"coverage           {at + len(some)} of {len(jobs)} designs", flush=True)
        for (kind, point, text), count in _points(some).items():
            family = found[kind]
            family[f"{point}s"] += 1
            family[f"{point}s_seen"] += count > 0
            if point == "line" and not count:
                never[kind if kind.startswith("lookup") else f"{kind}: {text}"] += 1
    total = sum(found.values(), Counter[str]())
    return {"coverage": {
        "designs": len(jobs), "lines": total["lines"], "lines_seen": total["lines_seen"], "toggles": total["toggles"],
        "toggles_seen": total["toggles_seen"], "families": {kind: dict(family) for kind, family in sorted(found.items())},
        "never_executed": dict(never.most_common()), "wall_s": time.perf_counter() - start, "status": "ok"}}


def _points(jobs: Sequence[Job]) -> Counter[tuple[str, str, str]]:
    """How often each point was reached, by kind of module, kind of point, and where it is."""
    counts: Counter[tuple[str, str, str]] = Counter()
    designs = [design for _, design, _ in jobs]
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "coverage.dat"
        for seed in SEEDS:
            runs = simulate_many([(design, inputs) for _, design, inputs in jobs], seed, covered=file)
            for (graph, design, inputs), run in zip(jobs, runs, strict=True):
                frames = inputs if set(graph.inputs) == set(inputs) else dict.fromkeys(graph.inputs, next(iter(inputs.values())))
                expected = run_integer(graph, frames)
                assert all(np.array_equal(values.ravel(), run.outputs[port].ravel())
                           for port, values in zip(run.outputs, expected.values(), strict=True)), design.top
            for point, count in _read(file, designs):
                counts[point] += count
    return counts


def _read(file: Path, designs: Sequence[Design]) -> Iterator[tuple[tuple[str, str, str], int]]:
    """The points of a coverage file: module's kind, `line` or `toggle`, and a text that tells them apart."""
    for line in file.read_text(encoding="latin-1").splitlines():
        if not (match := RECORD.match(line)):
            continue
        fields = dict(part.split("\x02", 1) for part in match["what"].split("\x01") if part)
        place = re.fullmatch(r"design(\d+)/(.+)", fields["f"])
        if place is None:
            continue
        design = designs[int(place[1])]
        kind = re.sub(r"\d+", "N", place[2].removeprefix(design.top).removesuffix(".v").strip("_")) or "top"
        point = fields["page"].split("/")[0].removeprefix("v_")
        if point == "toggle":
            yield (kind, point, f"{design.top} {fields['h']} {fields['o']}"), int(match["count"])
        elif point in ("line", "branch"):
            source = design.files[place[2]].splitlines()[int(fields["l"]) - 1].strip()
            yield (kind, "line", f"{fields['o']}: {re.sub(r'[0-9]+', 'N', source)[:160]}"), int(match["count"])
