"""Counting the area of many layers: resumable, in any executor, every result in a store under the hash of what it is of.

The key of a result is the text of the hardware, the synthesizer's version and the family. A second run finds what the
first has counted; changed hardware is counted again and nothing else.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from dovetail.errors import ToolError, UsageError
from dovetail.files import cache_folder, make_private, replace_text
from dovetail.fpga.assemble import build_design
from dovetail.fpga.toolchain.synthesize import FAMILIES, SYNTHESIS_MEMORY_BYTES, find_synthesizer, synthesize
from dovetail.fpga.toolchain.tools import content_key
from dovetail.measure.area_layers import AreaLayer, area_graph
from dovetail.processes import end_with_parent, worker_pool
from dovetail.progress import Progress

SCHEMA = 1
TOP = "layer"
"""Name of every layer's top module."""
NAMES: Mapping[str, str] = {"ultrascale": "xcu", "ultrascale+": "xcup"}
"""Families by the names people use, where the synthesizer has another."""


@dataclass(frozen=True, slots=True)
class CountedArea:
    """What a synthesizer counted of one layer; `key` is the hash of hardware, tool and family."""

    key: str
    layer: str
    family: str
    tool: str
    resources: Mapping[str, float]
    wall_s: float


class AreaResults:
    """A folder of results, one JSON file each: FOLDER/FAMILY/KEY.json."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keys(self, family: str) -> frozenset[str]:
        """Keys of everything counted for a family."""
        return frozenset(path.stem for path in (self.folder / family).glob("*.json"))

    def read(self, family: str, key: str) -> CountedArea:
        path = self.folder / family / f"{key}.json"
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            if found["schema"] != SCHEMA or found["key"] != key or found["family"] != family:
                raise ValueError("it holds another result")
            return CountedArea(key, str(found["layer"]), family, str(found["tool"]),
                               {str(k): float(v) for k, v in found["resources"].items()}, float(found["wall_s"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"{path}: not a result of a campaign ({error}); remove the file, and it is counted again") from None

    def write(self, found: CountedArea) -> None:
        folder = self.folder / found.family
        try:
            make_private(folder)
        except OSError as error:
            raise UsageError(f"{folder}: cannot be made, {error.strerror}; give another --store") from None
        replace_text(folder / f"{found.key}.json", json.dumps(
            {"schema": SCHEMA, "key": found.key, "layer": found.layer, "family": found.family, "tool": found.tool,
             "resources": dict(found.resources), "wall_s": round(found.wall_s, 3)}, indent=1) + "\n")


def default_store() -> Path:
    """Where results are kept unless told otherwise."""
    return cache_folder() / "campaign-area"


def family_of(name: str) -> str:
    """The synthesizer's family by either of its names."""
    family = NAMES.get(name.lower(), name.lower())
    if family not in FAMILIES:
        raise UsageError(f"--family {name}: unknown; known are {', '.join((*FAMILIES, *NAMES))}")
    return family


def result_key(files: Mapping[str, str], tool: str, family: str) -> str:
    """Hash of a design's text, the synthesizer's version and the family."""
    return content_key([family, tool, *(text for item in sorted(files.items()) for text in item)])


def count_layer(specimen: AreaLayer, family: str, known: frozenset[str]) -> tuple[str, CountedArea | None]:
    """Generate a layer and count it, unless its key is known; what an executor's workers run."""
    design = build_design(area_graph(specimen), TOP)
    tool = find_synthesizer(family).version
    key = result_key(design.files, tool, family)
    if key in known:
        return key, None
    # One part: a worker is one process with one synthesizer below it, whose memory is bounded.
    found = synthesize(design, family, unit_bytes=None)
    return key, CountedArea(key, str(specimen), family, tool, found.resources, found.wall_s)


def run_campaign(layers: Sequence[AreaLayer], families: Sequence[str], store: AreaResults, progress: Progress,
                 executor: Executor | None = None, jobs: int = 1) -> dict[str, dict[AreaLayer, CountedArea]]:
    """Count every layer for every family; results by family, in the layers' order.

    Any `concurrent.futures.Executor` serves (Dask's `client.get_executor()` is one); without one, a pool of `jobs`
    processes does. At most `jobs` layers are under way at a time, and each is stored as soon as it is counted, so that an
    interruption loses no more than those.
    """
    if jobs < 1:
        raise UsageError(f"--jobs {jobs}: must be at least 1")
    waiting = [(layer, family) for family in families for layer in layers]
    total, keys = len(waiting), dict[tuple[AreaLayer, str], str]()
    known = {family: store.keys(family) for family in families}
    with _pool(executor, jobs) as pool:
        running: dict[Future[tuple[str, CountedArea | None]], tuple[AreaLayer, str]] = {}
        waiting.reverse()
        while waiting or running:
            while waiting and len(running) < jobs:
                layer, family = waiting.pop()
                progress(f"{family}: {layer}", len(keys), total)
                running[pool.submit(count_layer, layer, family, known[family])] = (layer, family)
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                asked = running.pop(future)
                keys[asked], found = future.result()
                if found is not None:
                    store.write(found)
    progress("counted", total, total)
    return {family: {layer: store.read(family, keys[layer, family]) for layer in layers} for family in families}


@contextmanager
def _pool(executor: Executor | None, jobs: int) -> Iterator[Executor]:
    """The executor that was given, or a pool of our own whose processes end, with what they started, when we do."""
    if executor is not None:
        yield executor
        return
    with worker_pool(ProcessPoolExecutor(_affordable(jobs), mp_context=multiprocessing.get_context("spawn"),
                                         initializer=_end_when_told)) as own:
        yield own


def _affordable(jobs: int) -> int:
    """As many processes as memory has room for, each with a synthesizer at its limit; one always."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(jobs, memory // SYNTHESIS_MEMORY_BYTES))


def _end_when_told() -> None:
    """Leave Ctrl-C to the parent, and turn its order to end into an exception that ends the synthesizer below as well."""

    def end(number: int, frame: FrameType | None) -> None:
        raise ToolError("campaign: ended")

    end_with_parent()
    signal.signal(signal.SIGTERM, end)
