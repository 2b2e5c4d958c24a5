"""What scripts have in common: parts, of which `--part NAME` runs one with its own options, and files that runs go on from."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Part = Callable[[Sequence[str]], int | None]
"""What runs with the words of a command behind it; its exit status, 0 where it says nothing."""


def run(document: str, parts: Mapping[str, Part], asked: Sequence[str]) -> int:
    """Run the part that is asked for, the first one where none is; the exit status."""
    parser = argparse.ArgumentParser(description=document, formatter_class=argparse.RawDescriptionHelpFormatter, add_help=False,
                                     allow_abbrev=False)
    parser.add_argument("--part", choices=list(parts), help=f"default: {next(iter(parts))}")
    parser.add_argument("-h", "--help", action="store_true", help="show this and the options of a part, and end")
    options, own = parser.parse_known_args(asked)
    if options.help and options.part is None:
        parser.print_help()
        print()
    return parts[options.part or next(iter(parts))]([*own, *["--help"] * options.help]) or 0


def held(path: Path | None, resume: bool) -> dict[str, Any]:
    """What a file of figures holds, where a run is to go on from it; nothing otherwise."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if resume and path is not None and path.exists() else {}
    return found
