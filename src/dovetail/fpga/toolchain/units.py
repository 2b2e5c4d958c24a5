"""Parts of a design that are synthesized on their own, and what makes two of them equal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from dovetail.errors import UsageError
from dovetail.fpga.design import Design, module_texts, without_comments

PASSES: Mapping[str, str] = {
    "ecp5": "synth_ecp5 {dsp} -top {top}",
    "xcu": "synth_xilinx -family xcu -flatten -noiopad -noclkbuf {dsp} -top {top}",
    "xcup": "synth_xilinx -family xcup -flatten -noiopad -noclkbuf {dsp} -top {top}",
    "cyclonev": "synth_intel_alm -family cyclonev -noiopad -noclkbuf {dsp} -top {top}",
    "cyclone10gx": "synth_intel_alm -family cyclone10gx -noiopad -noclkbuf {dsp} -top {top}",
}
FSM_SEARCH_BYTES = 300_000
"""Text up to which Yosys looks for state machines: it judges every register that selects among constants by all cells, which of
thousands of products in tables does not come to an end. Engines have none to find."""
HEADER = re.compile(r"\bmodule\s+\w+\s*\((?:[^()]|\([^()]*\))*\)\s*;")
MULTIPLICATION = re.compile(r"(?<![(@*])\*(?![)*])")
DEFINED = re.compile(r"\bmodule\s+(\w+)")
WORD = re.compile(r"[A-Za-z_][\w$]*")
STRING_OR_WORD = re.compile(rf'"[^"\n]*"|{WORD.pattern}')


@dataclass(frozen=True, slots=True)
class Unit:
    """A part that is synthesized on its own: a top module with its small children; larger ones are black boxes."""

    top: str
    text: str
    images: Mapping[str, str]

    def script(self, family: str) -> str:
        """Yosys commands that read `unit.v` and write the cell counts to `cells.json`."""
        code = without_comments(self.text, keep_strings=False)
        dsp = "" if MULTIPLICATION.search(code) else "-nodsp"
        search = "" if len(self.text) <= FSM_SEARCH_BYTES else 'setattr -set fsm_encoding "none" w:*\n'
        return f"read_verilog unit.v\n{search}{PASSES[family].format(dsp=dsp, top=self.top)}\ntee -q -o cells.json stat -json\n"

    def nameless(self) -> tuple[Unit, dict[str, str]]:
        """The same part with modules and memory images named by their place in it, and the modules' own names by the new ones.

        Engines and FIFOs that differ in nothing else thus become equal, and one synthesis serves them all.
        """
        found = {self.top: "unit"}
        for name in DEFINED.findall(self.text):
            found.setdefault(name, f"module{len(found)}")
        text = STRING_OR_WORD.sub(lambda word: found.get(word[0], word[0]), self.text)
        images = {}
        for index, name in enumerate(sorted(self.images, key=self.text.index)):
            text = text.replace(f'"{name}"', f'"image{index}"')
            images[f"image{index}"] = self.images[name]
        return Unit("unit", text, images), {new: old for old, new in found.items()}


def divide(design: Design, unit_bytes: int | None) -> tuple[Unit, ...]:
    """Parts of a design, the one with its top module first; modules of at least `unit_bytes` become parts of their own."""
    texts = module_texts(design)
    if design.top not in texts:
        raise UsageError(f"synthesis of {design.top}: no such module; the files define {', '.join(sorted(texts)) or 'none'}")
    children = {name: _children(name, text, texts) for name, text in texts.items()}
    large = set()
    if unit_bytes is not None:
        large = {name for name, text in texts.items() if len(text) >= unit_bytes and _black_box(text) and name != design.top}
    units: list[Unit] = []
    waiting, seen = [design.top], {design.top}
    while waiting:
        top = waiting.pop(0)
        inside, boxes = _closure(top, children, large)
        chosen = [texts[name] for name in sorted(inside)] + [_black_box(texts[name]) for name in sorted(boxes)]
        text = "\n".join(chosen)
        units.append(Unit(top, text, {name: image for name, image in design.files.items() if f'"{name}"' in text}))
        waiting += sorted(boxes - seen)
        seen |= boxes
    return tuple(units)


def _children(name: str, text: str, known: Mapping[str, str]) -> set[str]:
    """Modules that a module's text names; in strings, such as a memory's style, and comments words mean something else."""
    return {word for word in set(WORD.findall(without_comments(text, keep_strings=False))) if word in known and word != name}


def _black_box(text: str) -> str:
    """The module without its body, empty where its ports are not declared in its header."""
    header = HEADER.match(text)
    return f"(* blackbox *) {header[0]} endmodule" if header and re.search(r"\b(input|output)\b", header[0]) else ""


def _closure(top: str, children: Mapping[str, set[str]], large: set[str]) -> tuple[set[str], set[str]]:
    """Modules below `top` that belong to its part, and the large ones at its border."""
    inside, boxes, waiting = {top}, set[str](), [top]
    while waiting:
        for child in children[waiting.pop()]:
            if child in large:
                boxes.add(child)
            elif child not in inside:
                inside.add(child)
                waiting.append(child)
    return inside, boxes
