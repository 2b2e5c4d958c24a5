"""What `dovetail serve` does."""

from __future__ import annotations

import argparse
import asyncio
import re
import ssl
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from dovetail.cli.options import above_zero
from dovetail.cli.output import emit, flush_output, warn
from dovetail.errors import ToolError, UsageError

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
"""What a model may be called: it stands in addresses and in labels of metrics."""


def serve_command(options: argparse.Namespace) -> int:
    """Run `dovetail serve`."""
    if find_spec("aiohttp") is None or find_spec("prometheus_client") is None:
        raise ToolError("dovetail serve: aiohttp and prometheus-client are needed; run `pip install 'dovetail-accel[serve]'`")
    from dovetail.serve import app  # here, so that other commands need neither
    from dovetail.serve.runner import open_build
    from dovetail.serve.workers import WorkerLimits
    for name, count in (("--queue", options.queue), ("--max-batch", options.max_batch), ("--workers", options.workers),
                        ("--connections", options.connections)):
        if count < 1:
            raise UsageError(f"{name} {count}: must be at least 1")
    if not 0 <= options.port <= 65535:
        raise UsageError(f"--port {options.port}: must be from 0 to 65535")
    serving = app.Serving(
        WorkerLimits(options.max_batch, options.queue, options.workers, above_zero("--hang-s", options.hang_s)),
        options.host, options.port, above_zero("--deadline-s", options.deadline_s),
        int(above_zero("--max-body-mb", options.max_body_mb) * 2**20), int(above_zero("--memory-mb", options.memory_mb) * 2**20),
        options.control, options.connections, above_zero("--idle-s", options.idle_s),
        above_zero("--transfer-s", options.transfer_s), tls_context(options.tls_cert, options.tls_key))
    folders = named_folders(options.builds)

    def started(server: app.Server, url: str) -> None:
        warn([note for m in server.models.values() if m.loaded for note in m.loaded.notes])
        found = {"schema": 1, "url": url, "models": {name: str(folder) for name, folder in folders.items()}}
        emit(options.json, found, lambda: f"{url} serves {', '.join(folders)}; Ctrl-C ends it")
        flush_output()

    openers = {name: partial(open_build, folder, options.trust) for name, folder in folders.items()}
    asyncio.run(app.serve(openers, serving, started))
    return 0


def tls_context(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """TLS with a certificate and its private key, which may lie in one file; None where there is none.

    Raises:
        UsageError: a key without a certificate, or files that hold no pair.
    """
    if certificate is None:
        if key is not None:
            raise UsageError(f"--tls-key {key}: no certificate is named; add --tls-cert FILE")
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key, password=lambda: b"")  # nobody is asked for one
    except OSError as error:
        raise UsageError(f"--tls-cert {certificate}: no certificate with its key, {(error.strerror or str(error)).lower()}; give "
                         "PEM files that belong together, the key without a password") from None
    return context


def named_folders(texts: list[str]) -> dict[str, Path]:
    """Build folders by the names of their models: the folder's own, or what stands before `=`.

    Raises:
        UsageError: a name is used twice or cannot stand in an address.
    """
    found: dict[str, Path] = {}
    for text in texts:
        name, _, folder = text.rpartition("=") if not Path(text).is_dir() else ("", "", text)
        name = name or Path(folder).resolve().name
        if not NAME.fullmatch(name):
            raise UsageError(f"{text}: {name!r} cannot name a model; letters, digits, _, . and - can, as in NAME=FOLDER")
        if name in found:
            raise UsageError(f"{text}: another build is called {name} already; write NAME=FOLDER")
        found[name] = Path(folder)
    return found
