"""Compiled networks from files that `gpu.saved` wrote."""

from __future__ import annotations

from pathlib import Path

from dovetail.errors import ModelError, UsageError
from dovetail.gpu import saved
from dovetail.gpu.executor import Compiled, assembled, gpu_here, in_order, options_of
from dovetail.gpu.lane import GpuProgram
from dovetail.gpu.launcher import launcher_here
from dovetail.gpu.library.joined import PartChoice, joined
from dovetail.gpu.library.part import LibraryLaunch
from dovetail.gpu.precompile import precompile
from dovetail.gpu.tuning import ChosenKernel
from dovetail.ir.onnx.read import read_onnx
from dovetail.kernels.lower import lower
from dovetail.numerics.tables import tabulate


def load(path: str | Path) -> Compiled:
    """A saved network on this GPU, as it was saved; UsageError where it was made for another GPU or version."""
    held, content = saved.contents(Path(path))
    here = saved.versions()
    if differ := [f"{name} {held.get(name)}, here {own}" for name, own in here.items() if held.get(name) != own]:
        raise UsageError(f"{path}: made with {'; '.join(differ)}; kernels were chosen for those: compile the model here")
    graph, kind = tabulate(read_onnx(content).graph), held["kind"]
    lowered = lower(graph, kind, gpu_here(), held["images"], library=True, avoided=held["avoided"])
    ways = {(run, first, last, call.key): call for run, each in enumerate(options_of(lowered, whole=True))
            for first, last, call in each}
    parts = []
    for one in held["kernels"]:
        place = (one["run"], one["first"], one["last"], one["key"])
        if place not in ways or one["config"] not in ways[place].configs:
            raise ModelError(f"{path}: kernel {one['kernel']} of run {one['run']} is none of this version's; compile the model "
                             "again")
        parts.append(ChosenKernel(one["run"], one["first"], one["last"], ways[place], one["config"], one["seconds"]))
    launcher = launcher_here(kind)
    if launcher.device != "cpu":
        precompile([launcher.described(part.call, part.config) for part in parts])
    names = frozenset(held["joined"])

    def chosen(launch: LibraryLaunch) -> PartChoice:
        return PartChoice(joined(launch)) if launch.part.nodes[0].name in names else PartChoice()
    avoided = frozenset(held["avoided"])
    return assembled(GpuProgram(graph, lowered, in_order(lowered, parts), {}, avoided, choose=chosen), launcher)
