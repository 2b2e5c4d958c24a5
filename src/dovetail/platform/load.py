"""Boards: TOML files (and the same structure as JSON inside plan.json) to checked `Platform` values and back."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from platform import machine
from typing import Any

from dovetail import plugins
from dovetail.errors import PlatformError
from dovetail.platform.accelerator import from_entries, to_entries
from dovetail.platform.calibrated import CALIBRATED, COEFFICIENTS, PARAMETERS
from dovetail.platform.device import ASSUMED, Device, Kind, Link, ModelSet, Platform, Switch
from dovetail.platform.fitted import (
    DHM,
    DHM_PARAMETERS,
    MASTER_BYTES,
    MASTERS,
    MODEL_PARAMETERS,
    ROOFLINE,
    dhm_model,
    formula_of,
    model_names,
)
from dovetail.platform.gpu_specification import specifications
from dovetail.platform.repeat import MARK, REPEAT, repeated, split_count, written_out
from dovetail.platform.schema import Limits, TomlTable, shipped, shipped_names, suggestion
from dovetail.platform.top import top_entries, top_of
from dovetail.words import counted

DEVICE_LIMITS: Mapping[str, Limits] = {
    "idle_power_w": Limits(0.0, 1e3, "W"),
    "busy_power_w": Limits(0.0, 1e3, "W"),
    "clock_hz": Limits(1e4, 1e11, "Hz"),
    "dispatch_s": Limits(0.0, 0.1, "s"),
}
PARAMETER_LIMITS: Mapping[str, Limits] = {
    "peak_flop_per_s": Limits(1e6, 1e16, "FLOP/s"),
    "efficiency": Limits(1e-4, 1.0, "(fraction of peak)"),
    "bandwidth_bytes_per_s": Limits(1e6, 1e14, "B/s"),
    "launch_s": Limits(0.0, 0.1, "s"),
    "interval_fraction": Limits(0.0, 10.0, "(fraction)"),
    **PARAMETERS,
    **COEFFICIENTS,
    **DHM_PARAMETERS,
}
LINK_LIMITS: Mapping[str, Limits] = {
    "bandwidth_bytes_per_s": Limits(1e3, 1e13, "B/s"),
    "latency_s": Limits(0.0, 1.0, "s"),
    "energy_j_per_byte": Limits(0.0, 1e-3, "J/B"),
}
RESOURCE_KEYS: Mapping[str, tuple[str, ...]] = {
    "cyclone10gx": ("alm", "m20k", "dsp", "register"),
    "ecp5": ("lut4", "register", "bram", "dsp"),
    "gw2a": ("lut4", "register", "bsram", "dsp"),
    "xcu": ("lut", "register", "bram36", "dsp"),
    "xcup": ("lut", "register", "bram36", "dsp"),
}
"""What each FPGA family counts; a board must state all of them."""
NAME = "[A-Za-z][A-Za-z0-9_-]{0,62}"
PART = "[A-Za-z0-9][A-Za-z0-9_.-]{0,63}(/[A-Z][0-9])?"
"""An order code, Gowin's with a grade such as /I7: it stands in scripts of vendors' tools, where anything else would be a
command."""
RESOURCE_LIMITS = Limits(0.0, 1e8, "pieces")
SLOT_LIMITS = Limits(2, 128, "time slots")
THIS_MACHINE = "this-machine"
"""The board of the processor Dovetail runs on, described when it is asked for."""
FLOP_PER_S_PER_CORE = 16e9
"""Four float32 multiply-adds per cycle at 2 GHz: what nearly any 64-bit core with vector units reaches."""


def platform_names() -> tuple[str, ...]:
    """Names of the boards that come with Dovetail; one ending in `:N` wants a number there, see `example_of`.

    Raises:
        PlatformError: a plug-in's board has the name of another.
    """
    return tuple(sorted([THIS_MACHINE, *(name + MARK if REPEAT in board else name for name, board in _shipped().items())]))


def example_of(name: str) -> str:
    """A name that loads: `fic:2` for `fic:N`, any other as it is."""
    return name.removesuffix(MARK) + ":2" if name.endswith(MARK) else name


@lru_cache(maxsize=1)
def _shipped() -> Mapping[str, Mapping[str, Any]]:
    """The entries of every board file that comes along, or with a plug-in, by its name.

    Raises:
        PlatformError: a plug-in's board has the name of one of ours.
    """
    ours, others = shipped_names("boards"), plugins.names("boards")
    if taken := sorted({*ours, THIS_MACHINE} & set(others)):
        raise PlatformError(f"plug-in board {taken[0]}: one of this name comes along; uninstall the plug-in, or rename it")
    return {**{name: shipped("boards", name).values for name in ours}, **{name: _plugged(name) for name in others}}


def _plugged(name: str) -> Mapping[str, Any]:
    """The entries of a plug-in's board, which is a file or its text."""
    found = plugins.load("boards", name)
    return _entries(f"plug-in board {name}", found.read_bytes() if hasattr(found, "read_bytes") else str(found).encode())


def load_platform(name_or_path: str) -> Platform:
    """A shipped board by name, `this-machine`, or any board file by its path; a count may follow as in `fic:4`.

    Raises:
        PlatformError: the board is unknown, or its file wrong.
    """
    if name_or_path == THIS_MACHINE:
        return _platform(TomlTable(f"platform {THIS_MACHINE}", this_machine_entries()))
    name, count = split_count(name_or_path)
    if name.endswith(".toml") or "/" in name:
        path = Path(name)
        if not path.is_file():
            raise PlatformError(f"platform {name_or_path}: no such file; "
                                f"give a board file or one of {', '.join(platform_names())}")
        entries, where = _entries(name, path.read_bytes()), name
    elif name in _shipped():
        entries, where = _shipped()[name], f"{name}.toml"
    else:
        raise PlatformError(f"platform {name_or_path}: unknown{suggestion(name_or_path, platform_names())}; "
                            f"known are {', '.join(platform_names())}, or give the path of a board file (.toml)")
    return _platform(TomlTable(where, written_out(name, count, TomlTable(where, entries))))


def platform_of_devices(text: str, name_or_path: str) -> Platform:
    """`fpga:3`: the board with three of its own FPGA; `xcku095:4`: the shipped board of four FPGAs whose part begins so.

    Raises:
        PlatformError: no such device or part, or no count.
    """
    part, count = split_count(text)
    board = load_platform(name_or_path)
    if part in {d.name for d in board.devices}:
        return repeated(board, part, count)
    known = {name: str(next(d.get("part", "") for d in entries["device"] if d["name"] == entries[REPEAT]["device"]))
             for name, entries in _shipped().items() if REPEAT in entries}
    found = [name for name, own in known.items() if part and own.startswith(part.lower())]
    if len(found) != 1 or count is None:
        choices = [*(d.name for d in board.of_kind(Kind.FPGA)), *(own.split("-")[0] for own in sorted(known.values()))]
        raise PlatformError(f"devices {text}: {'the count is missing' if found and count is None else 'unknown'}; "
                            f"write {' or '.join(f'{c}:N' for c in choices)} with N from 1 on")
    return load_platform(f"{found[0]}:{count}")


def platform_from_dict(entries: Mapping[str, Any]) -> Platform:
    """The platform stored in a plan; checked exactly like a board file."""
    return _platform(TomlTable(f"platform {entries.get('name', 'without name')}", entries))


def platform_to_dict(platform: Platform) -> dict[str, Any]:
    """A platform as JSON values in the structure of a board file; `platform_from_dict` restores it."""
    return {"name": platform.name, "description": platform.description, "host": platform.host,
            "device": [_device_entries(d) for d in platform.devices], "link": [_link_entries(x) for x in platform.links],
            **({"switch": {"slots": _sourced(platform.switch.most_slots, platform.switch.source)}} if platform.switch else {})}


def _entries(where: str, content: bytes) -> Mapping[str, Any]:
    try:
        return tomllib.loads(content.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise PlatformError(f"{where}: not readable as TOML: {problem}") from problem


def _platform(table: TomlTable) -> Platform:
    table.check_keys(("name", "description", "host", "device"), ("link", "switch"))
    devices = tuple(_device(t) for t in table.tables("device"))
    names = [d.name for d in devices]
    if not devices:
        table.fail("no [[device]]; at least one is needed")
    for name in names:
        if names.count(name) > 1:
            table.fail(f"two devices named {name}; names must differ")
    links = tuple(_link(t, names) for t in table.tables("link"))
    for link in links:
        if sum(x.name == link.name for x in links) > 1:
            table.fail(f"two links named {link.name}; names must differ")
    platform = Platform(table.text("name"), table.text("description"), table.choice("host", names), devices, links)
    if "switch" in table.values:
        platform = platform.with_switch(_switch(table.table("switch")))
    for name in names:
        platform.route(platform.host, name)
    return platform


def _switch(table: TomlTable) -> Switch:
    table.check_keys(("slots",))
    slots, source = table.number("slots", SLOT_LIMITS)
    if slots != int(slots):
        table.fail(f"key slots is {slots:g}; a whole number from {SLOT_LIMITS} is needed")
    return Switch(int(slots), source)


def _device(table: TomlTable) -> Device:
    table.check_keys(("name", "kind", "description", "model", "idle_power_w", "busy_power_w"),
                     ("clock_hz", "dispatch_s", "family", "part", "resources", "parameters", "models", "accelerator", "kernels",
                      "top"))
    kind = Kind(table.choice("kind", [k.value for k in Kind]))
    model = table.choice("model", [ROOFLINE, CALIBRATED, *model_names()])
    sources: dict[str, str] = {}
    numbers: dict[str, float] = {}
    for key, limits in DEVICE_LIMITS.items():
        if key in table.values:
            numbers[key], sources[key] = table.number(key, limits)
    if numbers["busy_power_w"] < numbers["idle_power_w"]:
        table.fail(f"key busy_power_w is {numbers['busy_power_w']:g} W, below idle_power_w {numbers['idle_power_w']:g} W; "
                   "busy must be at least idle")
    family = _family(table, kind, model)
    area = table.table("resources")
    area.check_keys(RESOURCE_KEYS[family] if family else ())
    parameters = table.table("parameters")
    optional = COEFFICIENTS if model == CALIBRATED else DHM_PARAMETERS if family else ()
    parameters.check_keys(MODEL_PARAMETERS.get(model, ()), optional)
    _check_masters(table, parameters)
    return Device(
        _name(table), kind, table.text("description"), model, numbers["idle_power_w"], numbers["busy_power_w"],
        numbers.get("clock_hz"), family, _numbers(area, dict.fromkeys(area.values, RESOURCE_LIMITS), sources, "resources"),
        _numbers(parameters, PARAMETER_LIMITS, sources, "parameters"), sources,
        ModelSet(table.choice("models", list(ModelSet))) if "models" in table.values else ModelSet.PLANNING,
        _part(table) if "part" in table.values else None,
        from_entries(table.values["accelerator"], table.where) if "accelerator" in table.values else None, _kernels(table, kind),
        numbers.get("dispatch_s"), top_of(table.table("top")) if "top" in table.values else None)


def _check_masters(table: TomlTable, parameters: TomlTable) -> None:
    """Refuse masters of memory that no design has."""
    for key, possible in (("memory_masters", MASTERS), ("memory_master_bytes", MASTER_BYTES)):
        if key in parameters.values and (found := parameters.number(key, PARAMETER_LIMITS[key])[0]) not in possible:
            table.fail(f"key parameters.{key} is {found:g}; {', '.join(map(str, possible))} are possible")


def _kernels(table: TomlTable, kind: Kind) -> str | None:
    """The specification by which a GPU's kernels are estimated, None where they are not."""
    if "kernels" not in table.values:
        return None
    if kind is not Kind.GPU:
        table.fail(f"key kernels is {table.values['kernels']!r}; only a gpu runs them, this is a {kind}")
    return table.choice("kernels", list(specifications()))


def _family(table: TomlTable, kind: Kind, model: str) -> str | None:
    """The family of an FPGA, None elsewhere; the model must be one of that kind and count that family's resources."""
    if kind is not Kind.FPGA:
        for key in ("family", "part", "top"):
            if key in table.values:
                table.fail(f"key {key} is {table.values[key]!r}; only an fpga has one, this is a {kind}")
        if formula_of(model) == DHM:
            processors = [m for m in (ROOFLINE, CALIBRATED, *model_names()) if formula_of(m) != DHM]
            table.fail(f"key model is {model!r}, which is hardware; a {kind} takes one of {', '.join(processors)}")
        return None
    if "family" not in table.values or "clock_hz" not in table.values:
        table.fail("an fpga needs the keys family and clock_hz")
    family = table.choice("family", list(RESOURCE_KEYS))
    fitting = [m for m in model_names() if formula_of(m) == DHM and {dhm_model(m).logic, dhm_model(m).block} <= set(
        RESOURCE_KEYS[family])]
    if model not in fitting:
        table.fail(f"key model is {model!r}; an fpga of family {family} takes {' or '.join(fitting)}")
    return family


def _name(table: TomlTable) -> str:
    """A name that can stand in a file name, in Verilog and in `link:from>to`."""
    name = table.text("name")
    if not re.fullmatch(NAME, name):
        table.fail(f"key name is {name!r}; letters, digits, - and _ are possible, a letter first")
    return name


def _part(table: TomlTable) -> str:
    part = table.text("part")
    if not is_part(part):
        table.fail(f"key part is {part!r}; an order code of letters, digits, - . and _ is needed")
    return part


def is_part(text: str) -> bool:
    """Whether a text can be a device's order code."""
    return re.fullmatch(PART, text) is not None


def _numbers(table: TomlTable, limits: Mapping[str, Limits], sources: dict[str, str], prefix: str) -> dict[str, float]:
    """All numbers of a table; their sources are recorded as `prefix.key`."""
    found: dict[str, float] = {}
    for key in table.values:
        found[key], sources[f"{prefix}.{key}"] = table.number(key, limits[key])
    return found


def _link(table: TomlTable, devices: list[str]) -> Link:
    table.check_keys(("name", "ends", *LINK_LIMITS), ("shared_memory", "full_duplex", "logic", "switch"))
    ends = table.values["ends"]
    if not isinstance(ends, list) or len(ends) != 2 or not all(isinstance(e, str) for e in ends) or ends[0] == ends[1]:
        table.fail(f"key ends is {ends!r}; two different device names are needed, from {', '.join(devices)}")
    for end in ends:
        if end not in devices:
            table.fail(f"key ends names {end!r}{suggestion(end, devices)}; devices are {', '.join(devices)}")
    sources: dict[str, str] = {}
    numbers: dict[str, float] = {}
    for key, limits in LINK_LIMITS.items():
        numbers[key], sources[key] = table.number(key, limits)
    taken = {key: _numbers(table.table(key), dict.fromkeys(table.table(key).values, RESOURCE_LIMITS), sources, key)
             for key in ("logic", "switch")}
    return Link(_name(table), (ends[0], ends[1]), shared_memory=table.flag("shared_memory", False),
                full_duplex=table.flag("full_duplex", True), sources=sources, logic=taken["logic"],
                switch=taken["switch"], **numbers)


def _sourced(value: float, source: str) -> dict[str, Any]:
    return {"value": value, "source": source}


def _device_entries(device: Device) -> dict[str, Any]:
    entries: dict[str, Any] = {"name": device.name, "kind": device.kind.value, "description": device.description,
                               "model": device.model}
    for key in DEVICE_LIMITS:
        value = getattr(device, key)
        if value is not None:
            entries[key] = _sourced(value, device.sources[key])
    if device.models is not ModelSet.PLANNING:
        entries["models"] = device.models.value
    for key, text in (("family", device.family), ("part", device.part), ("kernels", device.kernels)):
        if text is not None:
            entries[key] = text
    for prefix, numbers in (("resources", device.resources), ("parameters", device.parameters)):
        if numbers:
            entries[prefix] = {k: _sourced(v, device.sources[f"{prefix}.{k}"]) for k, v in numbers.items()}
    if device.accelerator is not None:
        entries["accelerator"] = to_entries(device.accelerator)
    if device.top is not None:
        entries["top"] = top_entries(device.top)
    return entries


def _link_entries(link: Link) -> dict[str, Any]:
    return {"name": link.name, "ends": list(link.ends), "shared_memory": link.shared_memory, "full_duplex": link.full_duplex,
            **{key: _sourced(getattr(link, key), link.sources[key]) for key in LINK_LIMITS},
            **{key: {k: _sourced(v, link.sources[f"{key}.{k}"]) for k, v in taken.items()}
               for key, taken in (("logic", link.logic), ("switch", link.switch)) if taken}}


def this_machine_entries() -> dict[str, Any]:
    """The board as entries of a board file; all rates are assumed until `calibrate` measures them."""
    cores = os.cpu_count() or 1

    def assumed(value: float, reason: str) -> dict[str, Any]:
        return {"value": value, "source": f"{ASSUMED}: {reason}"}

    return {
        "name": THIS_MACHINE,
        "description": "The computer this runs on: its CPU alone, with assumed rates",
        "host": "cpu",
        "device": [{
            "name": "cpu", "kind": "cpu", "model": "roofline",
            "description": f"{counted(cores, 'core')}, {machine() or 'unknown architecture'}",
            "idle_power_w": assumed(2.0 * cores, "2 W per core"),
            "busy_power_w": assumed(7.0 * cores, "7 W per core"),
            "parameters": {
                "peak_flop_per_s": assumed(FLOP_PER_S_PER_CORE * cores, f"{FLOP_PER_S_PER_CORE:g} FLOP/s per core"),
                "efficiency": assumed(0.5, "half of peak in convolutions"),
                "bandwidth_bytes_per_s": assumed(8e9, "one memory channel"),
                "launch_s": assumed(20e-6, "one operator call of an inference runtime"),
                "interval_fraction": assumed(0.5, "nothing was measured"),
            },
        }],
    }
