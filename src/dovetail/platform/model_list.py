"""Every shipped model in one table: what it predicts, from how many rows, how far it errs, and where it is valid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.platform.device import ModelSet
from dovetail.platform.fitted import DHM, dhm_model, formula_of, model_names, posynomial_model
from dovetail.platform.link_model import link_model
from dovetail.platform.quantity import Errors, Form, factor_model, quantity_model, quantity_names

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
