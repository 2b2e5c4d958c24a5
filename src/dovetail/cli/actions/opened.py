"""How every command opens a build folder that it is given."""

from __future__ import annotations

import argparse

from dovetail.cli.output import progress_bar, warn
from dovetail.runtime.build import Build, load_build
from dovetail.runtime.trust import what_runs


def open_build(options: argparse.Namespace) -> Build:
    """The build that a command names; what trust lets run is said first."""
    with progress_bar() as progress:
        build = load_build(options.build, options.trust, lambda stage, done, total: progress(f"check: {stage}", done, total))
    if options.trust:
        warn(what_runs(build.folder, build.program, build.platform))
    return build
