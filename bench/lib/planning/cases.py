"""What plans are measured with: networks of the zoo, light models of the onnx package, and every board."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx

from dovetail import zoo
from dovetail.ir import Graph
from dovetail.pipeline import graph_to_plan

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
"""Models with constant weights that the onnx package tests its backends with."""
BOARDS = ("tx2-c10gx", "ecp5-85", "tx2", "zcu102", "zc706", "kcu105", "h200", "fic:2", "fic:4", "fic:24", "fic-ku115:4")
"""Every board; of those with any number of FPGAs, a few sizes."""


def light_networks() -> dict[str, Path]:
    """The models of the onnx package, by name."""
    return {path.stem: path for path in sorted(LIGHT.glob("light_*.onnx"))}


def graph_of(name: str) -> Graph:
    """A network of the zoo, or one of the onnx package."""
    light = light_networks()
    if name in light:
        return graph_to_plan(light[name])[0]
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.onnx"
        path.write_bytes(zoo.build(name))
        return graph_to_plan(path)[0]


def chosen(parser: argparse.ArgumentParser, option: str, wanted: Sequence[str] | None) -> Sequence[str]:
    """The networks asked for by name, or all; a name that is none ends the command."""
    every = (*zoo.names(), *light_networks())
    if unknown := sorted(set(wanted or ()) - set(every)):
        parser.error(f"{option} {unknown[0]}: unknown; {', '.join(every)} exist")
    return wanted or every
