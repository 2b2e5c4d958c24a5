"""Build folders as a stranger or a bad disk would leave them: one seeded change each, for `mutated_builds.py` and tests."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

KINDS = ("field", "field", "field", "field", "description", "record", "bytes", "verilog", "files", "path")
"""In turn; a field of manifest and plan is the most frequent change."""
READ = (".onnx", ".npz", ".json", ".v")
RECORDS = ("verification.json", "synthesis.json", "power.json")


def hostile_values(canary: Path, outside: Path) -> list[Any]:
    """What a field may become: wrong types, numbers out of range, paths, and text that some language takes for a command."""
    touch = f"touch {canary}"
    return [
        None, True, False, 0, -1, 1, 2, 3, 0.5, -0.0, 1e308, -1e308, float("nan"), float("inf"), 10**30, -(10**30), 2**63, "",
        " ", "x", "x" * 5000, "\n", "\x00", "\ud800", "é\u202e", [], {}, [[]], [None], {"a": 1}, ["x"], [1, 2, 3],
        "../../../../x", f"../../../../../../../../{outside}/secret.txt", f"{outside}/written", "..", ".", "/", "con", "-f",
        "cpu", "fpga", "gpu", f"10CX220YF780E5G; exec {touch}", f"$({touch})", f"`{touch}`", f"[exec {touch}]", f"x\n{touch}",
        f"x}}; exec {touch}; {{", f"\"; initial $system(\"{touch}\"); //", "<script>alert(1)</script>", "'; --", "%s%n", "{0}",
        "${HOME}", "1e5", "nan",
    ]


def fields(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container of a JSON value with every key in it."""
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from fields(value[key])


def change_field(path: Path, rng: random.Random, values: list[Any]) -> str:
    """Change, remove or double one field of a JSON file."""
    document = json.loads(path.read_text(encoding="utf-8"))
    above, key = rng.choice(list(fields(document)))
    old, how = above[key], rng.random()
    if how < 0.15:
        del above[key]
        said = "removed"
    elif how < 0.25 and isinstance(above, list):
        above.append(old)
        said = "doubled"
    elif how < 0.35 and isinstance(old, int | float) and not isinstance(old, bool):
        above[key] = rng.choice([-old, old + 1, old * 1000, old / 3, str(old), int(old)])
        said = f"{old!r} to {above[key]!r}"
    elif how < 0.4 and isinstance(above, dict):
        above[rng.choice([v for v in values if isinstance(v, str)])] = above.pop(key)
        said = "renamed"
    else:
        above[key] = rng.choice(values)
        said = f"to {above[key]!r}"
    path.write_text(json.dumps(document), encoding="utf-8")
    return f"{path.name} {key!r} {said}"[:200]


def change_bytes(path: Path, rng: random.Random) -> str:
    """Flip, cut, empty or lengthen a file."""
    content = bytearray(path.read_bytes())
    how = rng.choice(["flip", "flip", "flip", "cut", "empty", "longer"]) if content else "longer"
    if how == "flip":
        for _ in range(rng.choice([1, 1, 4, 64])):
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    elif how == "cut":
        del content[rng.randrange(len(content)):]
    elif how == "empty":
        content.clear()
    else:
        content += rng.randbytes(rng.choice([1, 100, 10_000]))
    path.write_bytes(bytes(content))
    return f"{path.name} {how}"


def change_verilog(path: Path, rng: random.Random, canary: Path, outside: Path) -> str:
    """Put a command, a foreign file or another number into a module."""
    text = path.read_text(encoding="utf-8")
    added = rng.choice([
        f'initial $system("touch {canary}");', f'`include "{outside}/secret.txt"',
        f'import "DPI-C" function int system(input string s); initial system("touch {canary}");',
        f'initial begin integer f; f = $fopen("{outside}/written", "w"); $fdisplay(f, "x"); end',
        f'reg [7:0] m [0:1]; initial $readmemh("{outside}/secret.txt", m);',
        f"`systemc_header\nint x = system(\"touch {canary}\");",
        "// a comment", "wire unused_wire = 1'b0;"])
    if rng.random() < 0.8:
        path.write_text(text.replace("endmodule", f"{added}\nendmodule", 1), encoding="utf-8")
        return f"{path.name} has {added}"[:120]
    digits = [i for i, letter in enumerate(text) if letter.isdigit()]
    at = rng.choice(digits)
    path.write_text(text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1:], encoding="utf-8")
    return f"{path.name} digit {at}"


def change_files(folder: Path, rng: random.Random, outside: Path) -> str:
    """Swap, remove, link, double or replace whole files."""
    everything = sorted(p for p in folder.rglob("*") if p.is_file())
    one, other = rng.sample(everything, 2)
    how = rng.choice(["swap", "missing", "link", "link folder", "folder", "pipe", "more", "no folder"])
    if how == "swap":
        first, second = one.read_bytes(), other.read_bytes()
        one.write_bytes(second)
        other.write_bytes(first)
    elif how == "more":
        (one.parent / rng.choice(["more.v", "x.so", "sitecustomize.py", "-f", "dovetail.py"])).write_bytes(other.read_bytes())
    elif how in ("no folder", "link folder"):
        chosen = rng.choice(sorted(p for p in folder.rglob("*") if p.is_dir()))
        shutil.move(chosen, outside.parent / "moved")
        if how == "link folder":
            chosen.symlink_to(outside.parent / "moved")
    else:
        one.unlink()
        if how == "link":
            one.symlink_to(rng.choice([outside / "secret.txt", other, Path("/dev/zero"), Path("/nowhere"), one]))
        elif how == "folder":
            one.mkdir()
        elif how == "pipe":
            os.mkfifo(one)
    return f"{how} {one.name} {other.name}"


def change_path(folder: Path, rng: random.Random, canary: Path, outside: Path) -> str:
    """Name a file elsewhere in a description, or a command where a name belongs."""
    path = rng.choice(sorted(p for p in folder.glob("fpga/**/*.json") if p.name != "registers.json"))
    document = json.loads(path.read_text(encoding="utf-8"))
    wanted = rng.choice([f"../../../../../../../..{outside}/secret.txt", f"{outside}/secret.txt", "../../../../x", "x/../../y.v"])
    if "files" in document and rng.random() < 0.6:
        document["files"].append(wanted)
    else:
        document["top"] = rng.choice([f"a; exec touch {canary}", f"$(touch {canary})", wanted, "a\nb"])
    path.write_text(json.dumps(document), encoding="utf-8")
    return f"{path.name} names {wanted}"


def mutate(folder: Path, index: int, seed: int, canary: Path, outside: Path) -> tuple[str, str]:
    """Change a copy of a build in one way; returns the kind and what was changed. The same index and seed change the same."""
    rng, kind = random.Random(f"{seed}/{index}"), KINDS[index % len(KINDS)]
    values = hostile_values(canary, outside)
    ways: dict[str, Callable[[], str]] = {
        "field": lambda: change_field(folder / rng.choice(["manifest.json", "plan.json"]), rng, values),
        "description": lambda: change_field(rng.choice(sorted(folder.glob("fpga/**/*.json"))), rng, values),
        "record": lambda: change_field(rng.choice([p for n in RECORDS if (p := folder / n).is_file()]), rng, values),
        "bytes": lambda: change_bytes(rng.choice([*sorted(p for p in folder.rglob("*") if p.suffix in READ),
                                                  *[folder / "model.onnx", folder / "samples.npz"] * 10]), rng),
        "verilog": lambda: change_verilog(rng.choice(sorted(folder.glob("fpga/**/*.v"))), rng, canary, outside),
        "files": lambda: change_files(folder, rng, outside),
        "path": lambda: change_path(folder, rng, canary, outside),
    }
    return kind, ways[kind]()
