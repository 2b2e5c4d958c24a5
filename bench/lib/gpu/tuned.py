"""What tuning timed, taken into a file of timed tiles: kernels that changed since are timed by every network that is tuned.

`python bench/gpu_estimator.py --part tuned CACHE --into FILE --kernel NAME --case NAME:IMAGES --kind KIND`, CACHE as
`DOVETAIL_CACHE` has it (`gpu/remembered.py`), kernels and cases repeatable. FILE then holds of these kernels what was timed of
them in these networks and nothing older, unless it is to `--keep` that; what several networks have in common was timed once and
counts for the first of them. `--source` says which command tuned; a new FILE has GPU, versions and day of the sitting that did
(`--of`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from dovetail.files import replace_text
from dovetail.gpu.remembered import Tiles, load
from dovetail.kernels.calls import Call
from lib.gpu.tiles import tiled

Case = tuple[str, int]


def taken(tiles: Mapping[str, Tiles], networks: Mapping[Case, Mapping[str, Call]],
          kernels: Collection[str]) -> list[dict[str, Any]]:
    """Timed kernels of networks as a file has them; tiles that did not run are left out."""
    left, found = dict(tiles), list[dict[str, Any]]()
    for (name, images), calls in networks.items():
        for key, call in calls.items():
            times = [(s, tile) for s, tile in left.pop(key, ()) if s < float("inf")] if call.kernel in kernels else []
            if times:
                found.append({"network": name, "images": images, "kernel": call.kernel, "nodes": call.nodes, "times": times})
    return found


def begun(sitting: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """A file without times."""
    return {**{name: sitting[name] for name in ("gpu", "date", "torch", "triton")}, "kind": kind, "kernels": []}


def replaced(held: Mapping[str, Any], found: Sequence[Mapping[str, Any]], kernels: Collection[str], source: str,
             day: str, keep: bool = False) -> dict[str, Any]:
    """A file with other times of some kernels, or with more of them, and where they are from."""
    kept = [own for own in held["kernels"] if keep or own["kernel"] not in kernels]
    tuned = {**held.get("tuned", {}), **{kernel: {"date": day, "command": source} for kernel in sorted(kernels)}}
    return {**held, "kernels": [*kept, *found], "tuned": tuned}


def main(asked: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", type=Path, metavar="CACHE")
    parser.add_argument("--into", type=Path, required=True, help="the file to change")
    parser.add_argument("--kernel", action="append", required=True, help="take these kernels, repeatable")
    parser.add_argument("--keep", action="store_true", help="keep what was timed of them before")
    parser.add_argument("--case", action="append", required=True, metavar="NAME:IMAGES", help="as tuned, repeatable")
    parser.add_argument("--kind", default="int8", choices=["float16", "float32", "int8"], help="arithmetic (default: int8)")
    parser.add_argument("--source", required=True, help="the command that tuned")
    parser.add_argument("--date", default=date.today().isoformat(), help="when it did (default: today)")
    parser.add_argument("--of", type=Path, metavar="SITTING", help="what bench/gpu_fcm.py --json wrote, if FILE is to be new")
    options = parser.parse_args(asked)
    if not options.into.is_file() and options.of is None:
        raise SystemExit(f"{options.into}: no such file; a new one needs --of SITTING, which names GPU and versions")
    cases = [(name, int(images)) for name, images in (case.rsplit(":", 1) for case in options.case)]
    networks = {(name, images): tiled(name, images, options.kind) for name, images in cases}
    found = taken(load(options.cache).tiles, networks, options.kernel)
    new = not options.into.is_file()
    before = begun(json.loads(options.of.read_text()), options.kind) if new else json.loads(options.into.read_text())
    held = replaced(before, found, options.kernel, options.source, options.date, options.keep)
    replace_text(options.into, json.dumps(held) + "\n")
    print("\n".join(f"{kernel}: {len(times)} kernels, {sum(times)} tiles" for kernel in options.kernel
                    for times in [[len(own["times"]) for own in found if own["kernel"] == kernel]]))

