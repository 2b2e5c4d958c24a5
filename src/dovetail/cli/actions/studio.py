"""What `dovetail studio` does."""

from __future__ import annotations

import argparse
import asyncio
import webbrowser
from importlib.util import find_spec

from dovetail.cli.output import emit, flush_output
from dovetail.errors import ToolError, UsageError


def studio_command(options: argparse.Namespace) -> int:
    """Run `dovetail studio`."""
    if find_spec("aiohttp") is None:
        raise ToolError("dovetail studio: aiohttp is needed; run `pip install 'dovetail-accel[serve]'`")
    from dovetail.studio.app import studio  # here, so that other commands need it not
    if not 0 <= options.port <= 65535:
        raise UsageError(f"--port {options.port}: must be from 0 to 65535")
    if options.model is not None and not options.model.is_file():
        raise UsageError(f"{options.model}: no such file; give the path of an ONNX model, or none")

    def started(url: str) -> None:
        emit(options.json, {"schema": 1, "url": url}, lambda: f"{url} is the studio; Ctrl-C ends it")
        flush_output()
        if options.open:
            webbrowser.open(url)

    asyncio.run(studio(options.port, options.model, started))
    return 0
