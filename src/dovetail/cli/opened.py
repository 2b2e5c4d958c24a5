"""How every command opens a build folder that it is given."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dovetail.cli.output import progress_bar, warn

if TYPE_CHECKING:
    from dovetail.runtime.build import Build


def add_trust(sub: argparse.ArgumentParser) -> None:
    """Whether files that nobody has checked may run."""
    sub.add_argument("--trust", action="store_true",
                     help="use the build's generated files as they are, without checking that they are what its model and plan "
                          "give; they can run any command (SECURITY.md)")


def open_build(options: argparse.Namespace) -> Build:
    """The build that a command names; what trust lets run is said first."""
    from dovetail.runtime.build import load_build
    from dovetail.runtime.trust import what_runs
    with progress_bar() as progress:
        build = load_build(options.build, options.trust, lambda stage, done, total: progress(f"check: {stage}", done, total))
    if options.trust:
        warn(what_runs(build.folder, build.program, build.platform))
    return build
