"""Seeded mutants of Verilog, which proofs must refute, and a simulation that shows that they differ."""

from __future__ import annotations

import random
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dovetail.errors import MissingToolError
from dovetail.fpga.toolchain.tools import Command, run_tool

CHANGES: tuple[tuple[str, str, str], ...] = (
    ("plus for minus", r" - ", " + "), ("minus for plus", r" \+ ", " - "),
    ("or for and", r" & ", " | "), ("and for or", r" \| ", " & "),
    ("unequal for equal", r" == ", " != "), ("equal for unequal", r" != ", " == "), ("not less for less", r" < ", " >= "),
    ("inversion lost", r"~(?=[a-z(])", ""),
    ("branches exchanged", r" \? (\w[\w'\[\]:]*) : (\w[\w'\[\]:]*)(?=[;)])", r" ? \2 : \1"),
)
"""Name, pattern and replacement of each kind of mutant; constants are changed by one besides."""
CONSTANT = re.compile(r"(?<![\w\]])(\d+)'d(\d+)")
DRIVEN = re.compile(r"^(?:assign|wire .* = |  .*<= )")
CLOCKS = 400
"""Clocks that original and mutant are compared for."""


def mutants(files: Mapping[str, str], seed: int, covers: str = "") -> Iterator[tuple[str, dict[str, str]]]:
    """Mutants of a design in a seeded order: what was changed, and the files."""
    places = [(name, number, line) for name, text in sorted(files.items()) if name.endswith(".v")
              for number, line in enumerate(text.splitlines()) if DRIVEN.match(line) and re.search(covers, line)]
    order = random.Random(seed)
    order.shuffle(places)
    for name, number, line in places:
        changed = list(_changed(line))
        if changed:
            what, now = order.choice(changed)
            lines = files[name].splitlines()
            lines[number] = now
            yield f"{name}:{number + 1}: {what}: {now.strip()}", {**files, name: "\n".join(lines) + "\n"}


def _changed(line: str) -> Iterator[tuple[str, str]]:
    body, mark, note = line.partition(";")
    for what, pattern, put in CHANGES:
        for found in re.finditer(pattern, body):
            if "<=" in body[:3] or (found.start() < body.find("=") and "<=" not in body):
                continue
            yield what, body[:found.start()] + found.expand(put) + body[found.end():] + mark + note
    for found in CONSTANT.finditer(body):
        width, value = int(found[1]), int(found[2])
        yield "constant", f"{body[:found.start()]}{width}'d{value ^ 1}{body[found.end():]}{mark}{note}"


def shown(original: Mapping[str, str], mutant: Mapping[str, str], top: str, inputs: Mapping[str, int], outputs: Sequence[str],
          counterexample: Mapping[str, Any], seed: int) -> bool:
    """Whether Icarus sees original and mutant differ: driven by the counterexample first, then by random partners and data."""
    icarus, runner = shutil.which("iverilog"), shutil.which("vvp")
    if icarus is None or runner is None:
        raise MissingToolError("iverilog: not found; apt-get install iverilog")
    with tempfile.TemporaryDirectory(prefix="dovetail-mutant-") as made:
        folder = Path(made)
        for kind, files in (("a", original), ("b", mutant)):
            for name, text in files.items():
                path = folder / (f"{kind}_{name}" if name.endswith(".v") else name)
                path.write_text(_renamed(text, files, kind) if name.endswith(".v") else text, encoding="utf-8")
        (folder / "bench.v").write_text(_bench(top, inputs, outputs, counterexample, seed), encoding="utf-8")
        sources = sorted(p.name for p in folder.glob("*.v"))
        log = folder / "log"
        run_tool(Command("iverilog", (icarus, "-g2005", "-o", "sim", "-s", "bench", *sources), folder, log, 60.0))
        run_tool(Command("vvp", (runner, "-n", "sim"), folder, log, 60.0))
        return "DIFFERENT" in log.read_text(encoding="utf-8", errors="replace")


def _renamed(text: str, files: Mapping[str, str], kind: str) -> str:
    """A module text whose modules all have a letter in front."""
    names = [name for t in files.values() for name in re.findall(r"^module (\w+)", t, re.MULTILINE)]
    return re.sub(rf"(?<=^module )\b({'|'.join(names)})\b|^({'|'.join(names)})(?= \w+ \($)", lambda m: f"{kind}_{m[0]}", text,
                  flags=re.MULTILINE)


def _driven(counterexample: Mapping[str, Any]) -> dict[str, int]:
    """Data of inputs that a counterexample's taps stand for, where an output has the taps of one beat alone."""
    found: dict[str, int] = {}
    for name, value in counterexample.get("taps", {}).items():
        if place := re.fullmatch(r"x(\d+)_0_0|in(\d+)_x(\d+)|x_(\d+)", name):
            stream = "x" if place[4] else f"in{place[2] or 0}_data"
            channel = int(place[1] or place[3] or place[4] or 0)
            found[stream] = found.get(stream, 0) | (value & 255) << 8 * channel
        elif name in ("w", "starts", "works", "bias", "multiplier", "place"):
            found[name] = value
    return found


def _bench(top: str, inputs: Mapping[str, int], outputs: Sequence[str], counterexample: Mapping[str, Any], seed: int) -> str:
    """Both designs with the same inputs, whose outputs are compared before every edge."""
    draw, words, found = random.Random(seed), list[str](), _driven(counterexample)
    for clock in range(CLOCKS):
        given = counterexample.get("clocks", [])
        chosen = given[clock] if clock < len(given) else {}
        pace = (clock // 40) % 4
        fields = []
        for name, width in inputs.items():
            value = chosen.get(name)
            if value is None and width == 1:
                value = 1 if pace == 0 else int(draw.random() < (1.0, 0.3, 0.7, 1.0 - name.endswith("ready"))[pace])
            if value is None and pace % 2 == 0 and name in found:
                value = found[name] % (1 << width)
            if value is None:
                value = draw.getrandbits(width) if draw.random() < 0.6 else draw.choice((0, (1 << width) - 1, 1 << width - 1))
            fields.append((width, value))
        words.append("".join(format(value, f"0{width}b") for width, value in fields))
    total = sum(inputs.values())
    at, pins = total, []
    for name, width in inputs.items():
        at -= width
        pins.append(f".{name}(now[{at + width - 1}:{at}])")
    ports = {kind: ", ".join([*pins, *(f".{o}({kind}_{o})" for o in outputs)]) for kind in "ab"}
    wires = "\n".join(f"wire [255:0] {kind}_{o};" for kind in "ab" for o in outputs)
    differ = " || ".join(f"(a_{o} !== b_{o})" for o in outputs)
    steps = "\n".join(f"stimulus[{i}] = {total}'b{word};" for i, word in enumerate(words))
    return f"""module bench;
reg clk = 0, rst = 1; reg [{total - 1}:0] stimulus [0:{CLOCKS - 1}]; reg [{total - 1}:0] now; integer i;
{wires}
a_{top} a (.clk(clk), .rst(rst), {ports["a"]});
b_{top} b (.clk(clk), .rst(rst), {ports["b"]});
initial begin
{steps}
now = 0;
for (i = 0; i < 2; i = i + 1) begin #1 clk = 1; #1 clk = 0; end
rst = 0;
for (i = 0; i < {CLOCKS}; i = i + 1) begin
  now = stimulus[i];
  #1 if ({differ}) begin $display("DIFFERENT %0d", i); $finish; end
  clk = 1; #1 clk = 0;
end
$finish;
end
endmodule
"""
