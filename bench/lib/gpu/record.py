"""Measurements of a sitting into the record that comes with the package: new rows in the place of old ones, each with its day.

`python bench/gpu_fcm.py --json FILE --merge`, FILE as the same script wrote it. Rows without a time or with wrong results are
left out; rows that nobody measured again stay, as does torch.compile's time beside a row, with the day it was measured on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dovetail.files import replace_text

RECORD = Path(__file__).parents[3] / "src/dovetail/reproduce/records/gpu_fcm.json"
HEAD = ("gpu", "date", "torch", "triton", "cudnn", "copy_bytes_per_s")
COMPILED = ("compile_us", "compile_mj", "compiling_s")
ALLOWED = 1.5
"""Times cuDNN's relative error that ours may be."""
COMMAND = "PYTHONPATH=src python bench/gpu_fcm.py --json FILE; rows say when, and with which items"


def mistaken(one: Mapping[str, Any]) -> str:
    """What is wrong with a measurement's results, empty where nothing is: integers must be equal, floats near like the peer's."""
    if one.get("different"):
        return f"{one['different']} INTEGERS DIFFER FROM THE REFERENCE"
    if one.get("cudnn_rel_err") and not one["rel_err"] <= ALLOWED * one["cudnn_rel_err"]:
        return f"WRONG BY {one['rel_err']:.1e}, MORE THAN {ALLOWED} TIMES CUDNN'S"
    return ""


def merged(record: Mapping[str, Any], found: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A record with the rows of a sitting, and what there is to say of them."""
    into: dict[str, Any] = json.loads(json.dumps(record))
    when = {"date": found["date"], "command": found["command"]}
    said = []
    for name, kinds in found["networks"].items():
        for kind, batches in kinds.items():
            for batch, row in batches.items():
                if row.get("ours_us") is None:
                    said.append(f"{name} {kind} {batch}: left out, {row.get('reason', 'no time')}")
                    continue
                if mistaken(row):
                    said.append(f"{name} {kind} {batch}: left out, {mistaken(row)}")
                    continue
                place = into["networks"].setdefault(name, {}).setdefault(kind, {})
                before = place.get(batch, {})
                place[batch] = {**row, **when}
                said.append(f"{name} {kind} {batch}: {before.get('ours_us') or float('nan'):.1f} -> {row['ours_us']:.1f} us")
                if before.get("compile_us") and not row.get("compile_us"):
                    day = before.get("compile_date", before.get("date"))
                    place[batch] |= {key: before.get(key) for key in COMPILED} | {"compile_date": day}
                    said.append(f"{name} {kind} {batch}: torch.compile {before['compile_us']:.1f} us, measured {day}, not again")
    for kind, batches in found.get("pairs", {}).items():
        for batch, pairs in batches.items():
            complete = found.get("session", {}).get(f"pairs {kind} {batch}", {}).get("done", False)
            into.setdefault("pairs", {}).setdefault(kind, {})[batch] = {**pairs, **when, "complete": complete}
            said.append(f"pairs {kind} {batch}: {len(pairs['pairs'])} pairs{'' if complete else ', not all'}")
    if "estimator" in found:
        into["estimator"] = {**into.get("estimator", {}), **{kind: {**one, **when} for kind, one in found["estimator"].items()}}
        said.append(f"estimator: {', '.join(found['estimator'])}")
    return {**into, **{key: found[key] for key in HEAD}, "command": COMMAND}, said


def merge(path: Path, into: Path = RECORD) -> None:
    """Put the rows of a sitting's file into a record, and say what became of them."""
    record = json.loads(into.read_text("utf-8")) if into.is_file() else {"networks": {}}
    record, said = merged(record, json.loads(path.read_text("utf-8")))
    print("\n".join(f"{path.name}: {line}" for line in said))
    replace_text(into, json.dumps(record, indent=1) + "\n")
