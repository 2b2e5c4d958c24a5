"""Choices made before, on disk: the tiles of kernels and the kernels of networks, per GPU and per version of the kernels.

What cannot be read is tuned again; what cannot be written is not remembered.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any

from dovetail.errors import UsageError
from dovetail.files import cache_folder, check_own, make_private, replace_text

SOURCES = {"dovetail.gpu": ("distrusted",), "dovetail.gpu.triton": ("",), "dovetail.kernels": ("",)}
"""Files on which choices depend: of packages, those whose names begin so."""

Tiles = tuple[tuple[float, Mapping[str, int]], ...]
Chosen = tuple[tuple[int, int, int, str, Mapping[str, int], float], ...]
"""Of a network: run, first and last layer, kernel, tile, seconds alone."""


@dataclass(slots=True, eq=False)
class Remembered:
    """Choices for one GPU; `path` None remembers for as long as the process lasts."""

    path: Path | None = None
    tiles: dict[str, Tiles] = field(default_factory=dict)
    networks: dict[str, Chosen] = field(default_factory=dict)

    def save(self) -> None:
        """Write, with what others wrote meanwhile."""
        if self.path is None:
            return
        before = load(self.path)
        text = json.dumps({"tiles": {**before.tiles, **self.tiles}, "networks": {**before.networks, **self.networks}})
        try:
            make_private(self.path.parent)
            replace_text(self.path, text + "\n")
            self.path.chmod(0o600)
        except (OSError, UsageError):
            return


def load(path: Path) -> Remembered:
    """What a file holds; nothing where there is none or it is damaged."""
    try:
        held: dict[str, Any] = json.loads(path.read_text("utf-8"))
        tiles: dict[str, Tiles] = {str(k): tuple((float(s), dict(c)) for s, c in v) for k, v in held["tiles"].items()}
        networks: dict[str, Chosen] = {
            str(k): tuple((int(r), int(f), int(e), str(n), dict(c), float(s)) for r, f, e, n, c, s in v)
            for k, v in held["networks"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Remembered(path)
    return Remembered(path, tiles, networks)


def for_gpu(name: str, versions: Sequence[str]) -> Remembered:
    """Choices made on a GPU with the same kernels and versions."""
    digest = sha256("\n".join([name, *versions]).encode())
    for package, beginnings in SOURCES.items():
        for source in sorted(resources.files(package).iterdir(), key=lambda file: file.name):
            if source.name.startswith(beginnings) and source.name.endswith((".py", ".toml", ".json")):
                digest.update(source.read_bytes())
    path = cache_folder() / "gpu" / f"{digest.hexdigest()[:16]}.json"
    check_own(cache_folder(), path.parent, path)
    return load(path)


def network_key(keys: Sequence[str]) -> str:
    """The name of a network by all kernels that could compute it."""
    return sha256("\n".join(keys).encode()).hexdigest()
