"""What computes a model's frames: a build whose parts stay open, inside a worker process."""

from __future__ import annotations

import hashlib
import json
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Protocol

import numpy as np

from dovetail.errors import DovetailError, RangeWarning
from dovetail.fpga.links.stored import Boards
from dovetail.ir import Array, Graph
from dovetail.processes import STOPPING, end_with_parent
from dovetail.runtime.build import Build, load_build, run
from dovetail.runtime.stages import OnSimulated, RunnablePart
from dovetail.runtime.trust import SOURCES, check_plain, generated_digests, what_runs
from dovetail.schedule.program import Segment
from dovetail.serve.protocol import DATATYPES, NAMES, Signature, TensorPort


class Runner(Protocol):
    """Frames in, results out, by names; equal inputs give equal results, however often and in whatever batch."""

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]: ...


@dataclass(frozen=True, slots=True)
class Opened:
    """A runner with what it takes; `identity` tells whether another one computes the same; `notes` are for who started it."""

    runner: Runner
    signature: Signature
    identity: str
    notes: tuple[str, ...] = ()


Opener = Callable[[], Opened]
"""Opens a runner in a worker process, so it can be pickled."""


@dataclass(frozen=True, slots=True)
class OpenBuild(Build):
    """A build that loads each part once."""

    parts: dict[str, RunnablePart] = field(default_factory=dict)
    joined: dict[str, Boards] = field(default_factory=dict)

    def part(self, segment: Segment, on_simulated: OnSimulated | None = None) -> RunnablePart:
        if segment.name not in self.parts:
            self.parts[segment.name] = Build.part(self, segment, on_simulated)
        return self.parts[segment.name]

    def systems(self) -> dict[str, Boards]:
        return self.joined

    def open(self) -> None:
        """Load everything, so that the folder is needed no more."""
        self.joined.update(Build.systems(self))
        together = {s.name for boards in self.joined.values() if not boards.emulated for s in boards.segments}
        for segment in self.program.segments:
            if segment.name not in together:
                self.part(segment)


@dataclass(frozen=True, slots=True)
class BuildRunner:
    """A build as `build.run` computes it."""

    build: OpenBuild

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RangeWarning)  # of a stranger's frames
            return run(self.build, inputs)


def open_build(folder: Path, trust: bool) -> Opened:
    """Load a build folder under the rules of `load_build`, and compute a frame: what is made at first use is made now."""
    identity = ""
    if folder.is_dir():
        check_plain(folder)
        identity = digest_of(folder)
    loaded = load_build(folder, trust)
    build = OpenBuild(**{f.name: getattr(loaded, f.name) for f in fields(Build)})
    build.open()
    notes = tuple(what_runs(folder, build.program, build.platform)) if trust else ()
    opened = Opened(BuildRunner(build), signature_of(build.graph), identity, notes)
    opened.runner.run({p.name: np.zeros((1, *p.shape), DATATYPES[p.datatype]) for p in opened.signature.inputs})
    return opened


def digest_of(folder: Path) -> str:
    """SHA-256 over everything in a build folder that decides results."""
    sources = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in SOURCES if (folder / name).is_file()}
    return hashlib.sha256(json.dumps([sources, generated_digests(folder)], sort_keys=True).encode()).hexdigest()


def signature_of(graph: Graph) -> Signature:
    """What a graph takes and gives: floats where it has integers with a scheme."""
    def port(name: str) -> TensorPort:
        tensor = graph.tensors[name]
        return TensorPort(name, NAMES[tensor.element if tensor.scheme is None else "float32"], tensor.shape[1:])

    return Signature(tuple(map(port, graph.inputs)), tuple(map(port, graph.outputs)))


def work(opener: Opener, pipe: Connection) -> None:
    """Compute batches from a pipe until it closes: the whole life of a worker process.

    An answer is a pair: the results, and what went wrong or None. Signals are the server's, which ends its workers.
    """
    end_with_parent()
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    with suppress(EOFError, ConnectionError):  # nobody is at the other end any more
        try:
            opened = opener()
        except (DovetailError, OSError) as error:
            pipe.send((None, str(error)))
            return
        pipe.send(((opened.signature, opened.identity, opened.notes), None))
        while True:
            pipe.send(computed(opened.runner, pipe.recv()))


def computed(runner: Runner, batch: Mapping[str, Array]) -> tuple[dict[str, Array], str | None]:
    """The results of a batch, or what went wrong."""
    try:
        return runner.run(batch), None
    except Exception as error:  # whatever it is, the server answers it and lives on
        traceback.print_exc(file=sys.stderr)
        return {}, f"{type(error).__name__}: {error}"
