"""What comes along as plain text: boards, every number with its source, and models.

A board's assumed numbers are marked. The list of models says what each predicts, from how many rows, how far it errs, and where
it is valid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import floor, log10
from typing import Any, TypeVar

from dovetail.platform.calibrated import CALIBRATED
from dovetail.platform.device import ASSUMED, Device, Link, ModelSet, Platform
from dovetail.platform.fitted import DHM, ROOFLINE, dhm_model, formula_of, model_names, posynomial_model
from dovetail.platform.link_model import link_model
from dovetail.platform.quantity import Errors, Form, factor_model, quantity_model, quantity_names
from dovetail.words import counted

Row = tuple[str, str, str, str]
Item = TypeVar("Item", Device, Link)


def describe(platform: Platform) -> str:
    """The whole platform as an aligned table; assumed numbers carry a `*`."""
    lines = [f"{platform.name}: {platform.description}", f"host: {platform.host}", ""]
    for device, *more in _alike(platform.devices, lambda d: replace(d, name="")):
        names = " to ".join([device.name, *(d.name for d in more[-1:])])
        lines += [f"{names} ({device.kind}): {device.description}", f"  model {device.model}: {model_line(device)}",
                  *_aligned(_device_rows(device)), ""]
    for group in _alike(platform.links, lambda x: replace(x, name="", ends=("", ""))):
        link, ends = group[0], [" - ".join(x.ends) for x in group]
        ends = ends if len(ends) < 5 else [*ends[:2], "...", ends[-1]]
        names = " to ".join([link.name, *(x.name for x in group[1:][-1:])])
        kind = "shared memory" if link.shared_memory else "full duplex" if link.full_duplex else "one direction at a time"
        lines += [f"link {names}: {', '.join(ends)}, {kind}", *_aligned(_link_rows(link)), ""]
    return "\n".join([*lines, "* assumed: neither published nor measured"])


def _alike(items: Sequence[Item], nameless: Callable[[Item], object]) -> list[list[Item]]:
    """Neighbours that differ in their names only, together."""
    groups: list[list[Item]] = []
    for item in items:
        if groups and nameless(groups[-1][0]) == nameless(item):
            groups[-1].append(item)
        else:
            groups.append([item])
    return groups


def model_line(device: Device) -> str:
    """One sentence about the device's cost model: what it rests on and how far it errs."""
    if device.model == ROOFLINE:
        return f"peak rate, bandwidth and launch time; interval +-{device.parameters['interval_fraction']:.0%}, no layer measured"
    if device.model == CALIBRATED:
        return f"measured layer by layer; 90 % of the layers lie within +-{device.parameters['interval_fraction']:.0%}"
    if device.family is not None:
        hardware = dhm_model(device.model)
        cost = hardware.coefficients
        return (f"{hardware.source}; area +-{hardware.error:.0%}; power, a model: idle + {cost['power_w_per_logic']:.2g} W per "
                f"{hardware.logic} + {cost['power_w_per_block']:.2g} W per {hardware.block} while it works, at "
                f"{cost['power_clock_hz'] / 1e6:.4g} MHz and {cost['power_activity']:.1%} toggles per clock")
    fitted = posynomial_model(device.model)
    return (f"{fitted.source}; {counted(fitted.rows, 'row')}; cross-validated error latency {fitted.latency_error[0]:.1%} "
            f"(p90 {fitted.latency_error[1]:.1%}), energy {fitted.energy_error[0]:.1%} (p90 {fitted.energy_error[1]:.1%})")


def _device_rows(device: Device) -> Iterator[Row]:
    for key in ("clock_hz", "dispatch_s", "idle_power_w", "busy_power_w"):
        value = getattr(device, key)
        if value is not None:
            yield _row(key, value, device.sources[key])
    for prefix, numbers in (("resources", device.resources), ("parameters", device.parameters)):
        for key, value in numbers.items():
            yield _row(key, value, device.sources[f"{prefix}.{key}"])


def _link_rows(link: Link) -> Iterator[Row]:
    for key in ("bandwidth_bytes_per_s", "latency_s", "energy_j_per_byte"):
        yield _row(key, getattr(link, key), link.sources[key])
    for key, value in link.logic.items():
        yield _row(key, value, link.sources[f"logic.{key}"])
    for key, value in link.switch.items():
        yield _row(f"{key} of a switch", value, link.sources[f"switch.{key}"])


def _row(key: str, value: float, source: str) -> Row:
    return (key, _shown(value), "*" if source.startswith(ASSUMED) else " ", source)


def _shown(value: float) -> str:
    """Counts in full, other numbers with an exponent that stands for a unit's prefix: 38.4e9, 30e-6."""
    if value == int(value) and value < 1e7:
        return f"{value:,.0f}"
    prefix = 3 * floor(log10(value) / 3)
    return f"{value:.4g}" if 0.01 <= value < 1e3 else f"{value / 10.0**prefix:.4g}e{prefix}"


def _aligned(rows: Iterator[Row]) -> list[str]:
    table = list(rows)
    names, values = max((len(r[0]) for r in table), default=0), max((len(r[1]) for r in table), default=0)
    return [f"  {name:<{names}}  {value:>{values}}{mark} {source}" for name, value, mark, source in table]


LINKS = ("pcie-gen2x4",)
HARDWARE_FORMULA = "area of generated engines; power, a model: static + activity x resources x clock"


def model_list() -> list[dict[str, Any]]:
    """One entry per model and set, as `platforms --models --json` states it; errors are fractions, None where unknown."""
    return [*_planning(), *_measured(), *_published(), *_links()]


def _entry(models: str, name: str, formula: str, rows: int | None, errors: dict[str, float | None], box: dict[str, Any],
           source: str, note: str, intervals: Mapping[Form, Errors] | None = None) -> dict[str, Any]:
    return {"set": models, "name": name, "formula": formula, "rows": rows, "errors": errors, "box": box, "source": source,
            "note": note, "intervals": {form.value: {"low": e.low, "high": e.high, "coverage": e.coverage}
                                        for form, e in (intervals or {}).items()}}


def _planning() -> list[dict[str, Any]]:
    found = []
    for name in model_names():
        if formula_of(name) == DHM:
            hardware = dhm_model(name)
            found.append(_entry(ModelSet.PLANNING, name, HARDWARE_FORMULA, None, {"area": hardware.error}, {}, hardware.source,
                                hardware.description))
        else:
            fitted = posynomial_model(name)
            found.append(_entry(ModelSet.PLANNING, name, "terms and a monotone table, measuring loop removed", fitted.rows,
                                {"latency": fitted.latency_error[0], "energy": fitted.energy_error[0]}, dict(fitted.box),
                                fitted.source, fitted.description))
    return found


def _measured() -> list[dict[str, Any]]:
    found = []
    for name in quantity_names(ModelSet.MEASURED):
        model = quantity_model(ModelSet.MEASURED, name)
        formula = "physics x table, posynomial per kernel size"
        found.append(_entry(ModelSet.MEASURED, name, formula, model.rows, {f.value: e.mean for f, e in model.errors.items()},
                            model.box, model.source, f"{model.description}; {model.treatment}", model.errors))
    return found


def _published() -> list[dict[str, Any]]:
    note = "the authors' form, refitted here to their rows: their own coefficients are binary files nobody could read"
    return [_entry(ModelSet.PUBLISHED, name, "product of polynomials", (model := factor_model(name)).rows,
                   {"in sample": model.mape}, {}, model.source, note) for name in quantity_names(ModelSet.PUBLISHED)]


def _links() -> list[dict[str, Any]]:
    return [_entry("link", name, "line; line above a floor", (model := link_model(name)).rows,
                   {f.value: e.mean for f, e in model.errors.items()}, {"bytes": model.box_bytes}, model.source,
                   "both directions, unlabelled in the rows", model.errors) for name in LINKS]


def model_list_table(entries: Sequence[dict[str, Any]]) -> str:
    """The list for people."""
    lines = [f"{'set':<10}{'model':<17}{'rows':>6}  errors (cross-validated unless said), measured range"]
    for entry in entries:
        errors = ", ".join(f"{name} {error:.1%}" for name, error in entry["errors"].items() if error is not None)
        box = "  ".join(f"{name} {low:g}-{high:g}" for name, (low, high) in entry["box"].items())
        rows = "" if entry["rows"] is None else f"{entry['rows']:,}"
        lines.append(f"{entry['set']:<10}{entry['name']:<17}{rows:>6}  {errors}{f'; {box}' if box else ''}")
        lines.append(f"{'':<35}{entry['formula']}; {entry['note']}")
        spans = [f"{form} x {i['low']:.3f} to {i['high']:.3f}, holds {i['coverage']:.0%} of left-out rows"
                 for form, i in entry["intervals"].items()]
        if spans:
            lines.append(f"{'':<35}90 % interval: {'; '.join(spans)}")
    sources = dict.fromkeys(entry["source"] for entry in entries)
    lines.append("intervals follow the size of the prediction; outside the measured range they widen and say extrapolated")
    return "\n".join([*lines, "", "sources:", *(f"  {source}" for source in sources)])
