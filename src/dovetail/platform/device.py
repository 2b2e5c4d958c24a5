"""Devices, links and platforms: frozen values read from TOML, every number with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from dovetail.errors import PlatformError
from dovetail.platform.accelerator import AcceleratorDesign
from dovetail.platform.top import BoardTop


class Kind(StrEnum):
    """What a device is."""

    CPU = "cpu"
    GPU = "gpu"
    FPGA = "fpga"


class ModelSet(StrEnum):
    """Which models of the papers' board are believed; devices without published rows have one model only."""

    PLANNING = "planning"
    """Layers without the loop they were measured in, and the hardware we generate: what plans are made with."""
    MEASURED = "measured"
    """The published rows as they are: loop included, area and clock of the authors' hardware."""
    PUBLISHED = "published"
    """The authors' own form of model and serial FPGA latency, to reproduce their figures."""


ASSUMED = "assumed"
"""The source of a number nobody has published or measured; shown as such wherever the number is used."""


@dataclass(frozen=True, slots=True)
class Device:
    """One processor. `resources` are limits a plan may not exceed (FPGA area; empty elsewhere).

    `model` names the cost model in platform/models; `parameters` feed it (rates, efficiencies), in SI units.
    `sources` says where each key comes from, `assumed` where nobody says.
    """

    name: str
    kind: Kind
    description: str
    model: str
    idle_power_w: float
    busy_power_w: float
    clock_hz: float | None = None
    family: str | None = None
    resources: Mapping[str, float] = field(default_factory=dict)
    parameters: Mapping[str, float] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    models: ModelSet = ModelSet.PLANNING
    part: str | None = None
    """The vendor's order code of an FPGA, for hand-over projects."""
    accelerator: AcceleratorDesign | None = None
    """What an FPGA is to become as a whole; None where every layer is placed by itself."""
    kernels: str | None = None
    """Of a GPU that runs our kernels, the name of its specification in platform/gpus: plans then go by their estimates."""
    dispatch_s: float | None = None
    """What the host takes to start one part there: arguments, the driver's call, noticing the end. None counts as nothing.

    Neither transfers nor launches of kernels are in it, which links and `launch_s` count. That of the host is what a part of its
    own takes when its inputs come from elsewhere.
    """
    top: BoardTop | None = None
    """How an FPGA sits on its board, where a whole bitstream can be made for it."""

    def at_pace(self, clocks: int) -> Device:
        """An FPGA that may share multipliers, as long as no layer takes more than `clocks` clocks per frame."""
        return replace(self, parameters={**self.parameters, "pace_clocks": float(clocks)},
                       sources={**self.sources, "parameters.pace_clocks": "chosen for this plan"})


@dataclass(frozen=True, slots=True)
class Link:
    """A connection usable in both directions, one transfer at a time in each unless `full_duplex` is false."""

    name: str
    ends: tuple[str, str]
    bandwidth_bytes_per_s: float
    latency_s: float
    energy_j_per_byte: float
    shared_memory: bool = False
    full_duplex: bool = True
    sources: Mapping[str, str] = field(default_factory=dict)
    logic: Mapping[str, float] = field(default_factory=dict)
    """What each end takes of an FPGA's resources where it joins two of them: cells, checksums, credits, buffers."""
    switch: Mapping[str, float] = field(default_factory=dict)
    """The same where FPGAs are circuit switches; nothing where nobody has counted it."""

    def transfer_s(self, size_bytes: float) -> float:
        """Time to move `size_bytes`, nothing for nothing."""
        return self.latency_s + size_bytes / self.bandwidth_bytes_per_s if size_bytes > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Switch:
    """FPGAs that pass circuits on by time slots, as FiC's do: how many a frame may have, and who says so."""

    most_slots: int
    source: str


@dataclass(frozen=True, slots=True)
class Platform:
    """Devices joined by links. `host` is the device where frames arrive and results are wanted."""

    name: str
    description: str
    host: str
    devices: tuple[Device, ...]
    links: tuple[Link, ...]
    switch: Switch | None = None
    """None: FPGAs pass circuits on from buffer to buffer."""
    known_routes: dict[tuple[str, str], tuple[Link, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def device(self, name: str) -> Device:
        for device in self.devices:
            if device.name == name:
                return device
        raise PlatformError(f"platform {self.name}: no device {name}; it has {', '.join(d.name for d in self.devices)}")

    def with_models(self, models: ModelSet) -> Platform:
        """The same board with another set of models believed."""
        return replace(self, devices=tuple(replace(d, models=models) for d in self.devices))

    def with_pace(self, clocks: int) -> Platform:
        """The same board whose FPGAs may share multipliers, as long as no layer takes more than `clocks` clocks per frame."""
        return replace(self, devices=tuple(d.at_pace(clocks) if d.kind is Kind.FPGA else d for d in self.devices))

    def with_fill(self, fraction: float | None) -> Platform:
        """The same board of whose FPGAs plans may take no more than a fraction of every resource; None leaves it as it is."""
        return self if fraction is None else replace(self, devices=tuple(replace(
            d, parameters={**d.parameters, "fill": fraction}, sources={**d.sources, "parameters.fill": "chosen for this plan"})
            if d.kind is Kind.FPGA else d for d in self.devices))

    def link_logic(self, device: str) -> dict[str, float]:
        """What the ends of an FPGA's links to other FPGAs take of its resources."""
        boards = {d.name for d in self.of_kind(Kind.FPGA)}
        found: dict[str, float] = {}
        for link in self.links:
            for name, amount in link.logic.items() if device in link.ends and boards.issuperset(link.ends) else ():
                found[name] = found.get(name, 0.0) + amount
        return found

    def with_link_logic(self) -> Platform:
        """The same board whose FPGAs have for layers what the ends of their links leave; nothing is taken a second time."""
        devices = []
        for device in self.devices:
            taken = self.link_logic(device.name) if device.kind is Kind.FPGA else {}
            left = {r: max(0.0, limit - taken.get(r, 0.0)) for r, limit in device.resources.items()}
            devices.append(replace(device, resources=left) if taken else device)
        links = [x if not x.logic else replace(x, logic={}, switch={}, sources={
            k: v for k, v in x.sources.items() if not k.startswith(("logic.", "switch."))}) for x in self.links]
        return replace(self, devices=tuple(devices), links=tuple(links))

    def with_switch(self, switch: Switch) -> Platform:
        """The same board whose FPGAs pass circuits on by time slots; ends of links take what they take then.

        Raises:
            PlatformError: links between FPGAs have different bandwidths, so that frames of slots could not keep pace.
        """
        boards = {d.name for d in self.of_kind(Kind.FPGA)}
        between = sorted((x for x in self.links if boards.issuperset(x.ends)), key=lambda x: x.bandwidth_bytes_per_s)
        if between and between[0].bandwidth_bytes_per_s != between[-1].bandwidth_bytes_per_s:
            slow, fast = between[0], between[-1]
            raise PlatformError(f"platform {self.name}: a switch needs links of one bandwidth, and {slow.name} has "
                                f"{slow.bandwidth_bytes_per_s:g} B/s where {fast.name} has {fast.bandwidth_bytes_per_s:g}; leave "
                                "out the switch, or give both the lower one")
        links = [x if not x.switch else replace(x, logic=x.switch, switch={}, sources={
            **{k: v for k, v in x.sources.items() if not k.startswith(("logic.", "switch."))},
            **{k.replace("switch.", "logic."): v for k, v in x.sources.items() if k.startswith("switch.")}}) for x in self.links]
        return replace(self, links=tuple(links), switch=switch)

    def with_accelerator(self, device: str, accelerator: AcceleratorDesign) -> Platform:
        """The same board with one FPGA that is to become an accelerator for a whole network."""
        return replace(self, devices=tuple(replace(d, accelerator=accelerator) if d.name == device else d for d in self.devices))

    def with_area(self, part: float) -> Platform:
        """The same board with a part of every budget of its devices."""
        return replace(self, devices=tuple(replace(d, resources={r: part * v for r, v in d.resources.items()})
                                           for d in self.devices))

    def of_kind(self, kind: Kind) -> tuple[Device, ...]:
        return tuple(d for d in self.devices if d.kind is kind)

    def route(self, source: str, target: str) -> tuple[Link, ...]:
        """The links from one device to another, fewest hops first, then least latency; empty for the same device."""
        if source == target:
            return ()
        if (source, target) not in self.known_routes:
            self.known_routes[source, target] = self._find_route(source, target)
        return self.known_routes[source, target]

    def _find_route(self, source: str, target: str) -> tuple[Link, ...]:
        paths: list[tuple[str, tuple[Link, ...]]] = [(source, ())]
        seen = {source}
        while paths:
            found = sorted((p for p in paths if p[0] == target), key=lambda p: sum(link.latency_s for link in p[1]))
            if found:
                return found[0][1]
            grown: list[tuple[str, tuple[Link, ...]]] = []
            for at, links in paths:
                for link in self.links:
                    if at in link.ends:
                        other = link.ends[1] if link.ends[0] == at else link.ends[0]
                        if other not in seen:
                            grown.append((other, (*links, link)))
            seen |= {at for at, _ in grown}
            paths = grown
        raise PlatformError(f"platform {self.name}: no link path from {source} to {target}; add a [[link]] to the board file")
