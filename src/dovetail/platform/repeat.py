"""Boards of N equal devices: `fic:4` from the file of `fic:N`.

Such a file has a [repeat] table that names one device and one link of that device to itself. Written out for N, the
device becomes N devices with a number after the name, the link joins each to the next and, from three on, the last to
the first; other links to the device lead to the first. N in name and description is replaced.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dovetail.errors import PlatformError
from dovetail.platform.device import Kind, Platform
from dovetail.platform.schema import Limits, TomlTable

REPEAT = "repeat"
MARK = ":N"
"""What follows the name of such a board where N is left open."""
MOST = Limits(1, 64, "devices")


def split_count(name: str) -> tuple[str, str | None]:
    """The name without its count, and the count as it was written: `fic:4` is `fic` and `4`."""
    base, colon, count = name.rpartition(":")
    return (base, count) if colon and base and "/" not in count else (name, None)


def written_out(board: str, count: str | None, table: TomlTable) -> Mapping[str, Any]:
    """The entries of a plain board; `board` is how the file was asked for, `count` the text after its colon."""
    asked = TomlTable(f"platform {board}" if count is None else f"platform {board}:{count}", table.values)
    if REPEAT not in table.values:
        if count is not None:
            asked.fail(f"{board} has no [{REPEAT}] table, so no number of devices can be chosen; write {board}")
        return table.values
    repeat = table.table(REPEAT)
    repeat.check_keys(("device", "link", "most"))
    most = _most(repeat)
    such = f"such as {board}:{min(2, most)}"
    if count is None:
        asked.fail(f"the number of devices is missing; write {board}{MARK} with N from 1 to {most}, {such}")
    if not re.fullmatch("[0-9]{1,9}", count) or not 1 <= int(count) <= most:
        asked.fail(f"N is {count!r}; a whole number from 1 to {most} devices is needed, {such}")
    return _entries(table, repeat, int(count))


def _most(repeat: TomlTable) -> int:
    most = repeat.plain_number("most", MOST)
    if most != int(most):
        repeat.fail(f"key most is {most:g}; a whole number from {MOST} is needed")
    return int(most)


def _entries(table: TomlTable, repeat: TomlTable, count: int) -> dict[str, Any]:
    devices, links = table.tables("device"), table.tables("link")
    device = repeat.choice("device", [str(d.values.get("name")) for d in devices])
    link = repeat.choice("link", [str(x.values.get("name")) for x in links])
    names = [f"{device}{i}" for i in range(count)]
    pairs = [(names[i], names[(i + 1) % count]) for i in range(count if count > 2 else count - 1)]
    written = {key: value for key, value in table.values.items() if key != REPEAT}
    for key in ("name", "description"):
        if key in written:
            written[key] = re.sub(r"\bN\b", str(count), str(written[key]))
    written["device"] = [{**d.values, "name": name} for d in devices
                         for name in (names if d.values.get("name") == device else [d.values.get("name")])]
    written["link"] = []
    for found in links:
        ends = found.values.get("ends")
        if found.values.get("name") != link:
            first = [names[0] if end == device else end for end in ends] if isinstance(ends, list) else ends
            written["link"].append({**found.values, "ends": first})
        elif ends != [device, device]:
            found.fail(f"key ends is {ends!r}; a link that repeats joins {device!r} to itself: [\"{device}\", \"{device}\"]")
        else:
            written["link"] += [{**found.values, "name": f"{link}{i}", "ends": list(pair)} for i, pair in enumerate(pairs)]
    return written


def repeated(platform: Platform, device: str, count: str | None) -> Platform:
    """The platform with so many of one FPGA of its own: each with a number after its name and links of its own.

    Raises:
        PlatformError: the count is missing or out of range, or the device is no FPGA.
    """
    where = f"devices {device}" if count is None else f"devices {device}:{count}"
    if (kind := platform.device(device).kind) is not Kind.FPGA:
        raise PlatformError(f"{where}: {device} of {platform.name} is a {kind}; only FPGAs can be repeated")
    if count is None or not re.fullmatch("[0-9]{1,9}", count) or not 1 <= int(count) <= MOST.hi:
        raise PlatformError(f"{where}: a whole number from {MOST} is needed after the colon, such as {device}:2")
    names = [f"{device}{i}" for i in range(int(count))]
    devices = tuple(replace(d, name=name) for d in platform.devices for name in (names if d.name == device else [d.name]))
    links = tuple(replace(x, name=f"{x.name}{i}", ends=(own if x.ends[0] == device else x.ends[0],
                                                       own if x.ends[1] == device else x.ends[1]))
                  if device in x.ends else x
                  for x in platform.links for i, own in enumerate(names if device in x.ends else names[:1]))
    return replace(platform, name=f"{platform.name} with {device}:{count}",
                   description=f"{platform.description}; {count} of {device}, each with links of its own",
                   devices=devices, links=links)
