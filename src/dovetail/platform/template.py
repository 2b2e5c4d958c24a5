"""A board file to edit: that of another board, with a comment at every section, and its sources marked as taken over."""

from __future__ import annotations

import re
import tomllib
from importlib import resources
from pathlib import Path

from dovetail.errors import PlatformError
from dovetail.platform.device import ASSUMED
from dovetail.platform.load import NAME, THIS_MACHINE, platform_names
from dovetail.platform.repeat import MARK, REPEAT
from dovetail.platform.schema import shipped_names, suggestion

HEAD = """# {name}: a board of your own, begun as {source}. Replace every number by your board's, with where you know it from.
#
# A number is {{ value, source }}, in the SI unit that its key names. A source that begins with "assumed" marks a number that
# nobody has published or measured, and plans say so. Every field is explained in docs/reference/board-toml.md.
#
#   dovetail platforms ./{name}.toml             does it load, and what does it say?
#   dovetail plan model.onnx -p ./{name}.toml    who computes what on it?
#   dovetail calibrate --device cpu -o cpu.toml  measure a processor in place of assuming it
"""
SECTIONS = {
    "[[device]]": "# A processor or an FPGA: `kind` is cpu, gpu or fpga; `model` says how its times are estimated.",
    "[device.resources]": "# What the FPGA has: all resources of its family must be stated.",
    "[device.parameters]": "# What the device's model needs to know of it.",
    "[[link]]": "# What joins two devices: `ends` are their names. Each direction has the bandwidth, unless full_duplex = false.",
    "[repeat]": "# The device and the link that are repeated for NAME:N.",
}
"""What is said above each kind of section."""
SOURCE = re.compile(r'\bsource = "((?:[^"\\]|\\.)*)"')


def board_template(name: str, source: str) -> tuple[str, int]:
    """The text of a new board file, which loads, and how many numbers it takes over from another board.

    Raises:
        PlatformError: the name cannot be one or is taken, or the other board has no file.
    """
    if not re.fullmatch(NAME, name):
        raise PlatformError(f"new board {name!r}: letters, digits, - and _ are possible, a letter first")
    if name in {known.partition(":")[0] for known in platform_names()}:
        raise PlatformError(f"new board {name}: a board of this name comes along; choose another one")
    text = _text_of(source)
    body = re.sub(r"\A(?:(?:#.*|[ \t]*)\n)*", "", text)
    mark = f"{name}{MARK}" if REPEAT in tomllib.loads(text) else name
    body = re.sub(r'^name = "[^"]*"', f'name = "{mark}"', body, count=1, flags=re.M)
    body, numbers = SOURCE.subn(lambda m: f'source = "{ASSUMED}: taken over from {Path(source).name} ({_plain(m[1])})"', body)
    lines = []
    for line in body.splitlines():
        lines += [SECTIONS[line.strip()]] if line.strip() in SECTIONS else []
        lines.append(line)
    return HEAD.format(name=name, source=source) + "\n" + "\n".join(lines) + "\n", numbers


def _plain(source: str) -> str:
    """A source without the word that marks it as assumed."""
    return source.removeprefix(ASSUMED).removeprefix(":").strip() or ASSUMED


def _text_of(source: str) -> str:
    if source.endswith(".toml") or "/" in source:
        try:
            return Path(source).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PlatformError(f"new board from {source}: cannot be read ({error}); give a board file or a name") from None
    if source not in shipped_names("boards"):
        known = [n.partition(":")[0] for n in platform_names() if n != THIS_MACHINE]
        raise PlatformError(f"new board from {source}: no board file of this name{suggestion(source, known)}; known are "
                            f"{', '.join(known)}")
    return (resources.files("dovetail.platform") / "boards" / f"{source}.toml").read_text(encoding="utf-8")
