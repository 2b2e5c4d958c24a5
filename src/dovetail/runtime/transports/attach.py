"""A build whose FPGA parts are computed by real boards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dovetail.errors import UsageError
from dovetail.fpga.links.system import systems_of
from dovetail.platform.device import Kind
from dovetail.runtime.build import Build
from dovetail.runtime.transports.board import BoardPlace, parse_board


def with_boards(build: Build, texts: Sequence[str]) -> Build:
    """The build with boards at the places that were named (`parse_board`); FPGAs that are not named stay simulated."""
    used = dict.fromkeys(s.device for s in build.program.segments if build.platform.device(s.device).kind is Kind.FPGA)
    joined = {s.device for segments in systems_of(build.program, build.platform).values() for s in segments}
    boards = dict[str, BoardPlace]()
    for text in texts:
        named, place = parse_board(text)
        device = named or (next(iter(used)) if len(used) == 1 else "")
        if device not in used or device in boards:
            raise UsageError(f"--board {text}: {f'device {named}' if named else 'no device is named'}; FPGAs of this build are "
                             f"{', '.join(used) or 'none'}, each with one board: --board DEVICE={place}")
        if device in joined:
            raise UsageError(f"--board {text}: {device} is joined to other FPGAs by links; such boards are only simulated, "
                             "leave --board out")
        boards[device] = place
    return replace(build, boards=boards)
