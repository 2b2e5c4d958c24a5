"""`python -m dovetail.cost.fitting --data DIR -o MODELS`: fit every shipped model again."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dovetail.cost.fitting.authors import DEGREES, POWER_COLUMNS, factor_text, fit_factors, fit_power
from dovetail.cost.fitting.link import COLUMNS, FILE, fit_link, link_text
from dovetail.cost.fitting.planning import fit_processor, planning_text
from dovetail.cost.fitting.quantity import fit_and_predict
from dovetail.cost.fitting.recipes import RECIPES
from dovetail.cost.fitting.rows import FILES, LEVEL_COLUMNS, read_rows
from dovetail.cost.fitting.scatter import errors_of
from dovetail.cost.fitting.text import quantity_text, summary
from dovetail.files import replace_text
from dovetail.hardware.shares import Floats
from dovetail.platform.quantity import Form, QuantityModel
from dovetail.words import counted

FLOORS = {"cpu": "0.87 ms per measured loop plus random input and weights; the launch cost of a plan is assumed",
          "gpu": "1.4 ms per measured loop plus random input; the launch cost of a plan is assumed"}
"""What is removed from the rows for planning."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """Where rows come from and models go to, and what was fitted so far."""

    data: Path
    output: Path
    fitted: dict[str, tuple[QuantityModel, dict[Form, Floats]]] = field(default_factory=dict)

    def quantity(self, name: str) -> tuple[QuantityModel, dict[Form, Floats]]:
        """A quantity's model and its rows as predicted without their fold, fitted once."""
        if name not in self.fitted:
            recipe = next(r for r in RECIPES if r.name == name)
            columns = read_rows(self.data / FILES[recipe.device], (*LEVEL_COLUMNS, *recipe.columns))
            self.fitted[name] = fit_and_predict(recipe, columns, lambda stage: print(f"  {stage}", file=sys.stderr, flush=True))
        return self.fitted[name]

    def measured(self, name: str) -> str:
        model, _ = self.quantity(name)
        replace_text(self.output / "measured" / f"{name}.toml", quantity_text(model))
        return summary(model)

    def published(self, name: str) -> str:
        device, quantity = name.rsplit("-", 1)
        column = "latency_ms" if quantity == "latency" else quantity
        columns = read_rows(self.data / FILES[device], (*LEVEL_COLUMNS, column))
        value = columns[column] * (1e-3 if quantity == "latency" else 1.0)
        model = fit_factors(name, "s" if quantity == "latency" else quantity.upper(), columns, value)
        replace_text(self.output / "published" / f"{name}.toml", factor_text(model))
        return f"{name} refitted in the authors' form {DEGREES[name]}: {model.mape:.1%} in sample"

    def planning(self, name: str) -> str:
        """The layer without its loop; the error of its energy is that of a turn's time x power, each without the row's fold."""
        processor = name.removeprefix("tx2-")
        columns = read_rows(self.data / FILES[name], (*LEVEL_COLUMNS, "latency_ms", "energy_j"))
        (latency, seconds), (power, watts) = (self.quantity(f"{name}-{q}") for q in ("latency", "power"))
        error = errors_of(seconds[Form.EVALUATION] * watts[Form.EVALUATION], columns["energy_j"])
        plan = fit_processor(columns, name, f"Jetson TX2 {processor.upper()}, PyTorch convolution, float32, batch 1", latency,
                             power, error)
        replace_text(self.output / f"{name}.toml", planning_text(plan, FLOORS[processor]))
        return f"{name} for plans: without {FLOORS[processor]}; energy {error.mean:.2%} (p90 {error.p90:.2%})"

    def dynamic_power(self, name: str) -> str:
        """Nothing is written: the coefficients stand in dhm-cyclone10gx.toml, with those of area."""
        (fixed, logic, block), errors = fit_power(read_rows(self.data / FILES[name], POWER_COLUMNS))
        return (f"{name} power: {fixed:.3f} W + {logic:.3g} W per ALM + {block:.4g} W per M20K, left out {errors.mean:.2%} "
                f"(p90 {errors.p90:.2%})")

    def link(self, name: str) -> str:
        model = fit_link(read_rows(self.data / FILE, COLUMNS))
        replace_text(self.output / "links" / f"{model.name}.toml", link_text(model))
        errors = ", ".join(f"{form} {e.mean:.2%} (p90 {e.p90:.2%})" for form, e in model.errors.items())
        return f"{model.name}: {counted(model.rows, 'row')}, {errors}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit the models whose names contain one of the given words (all without any), and write their files."""
    parser = argparse.ArgumentParser(prog="python -m dovetail.cost.fitting", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the published CSV files")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the model sets (platform/models)")
    parser.add_argument("names", nargs="*", help="only models whose name contains one of these")
    options = parser.parse_args(arguments)
    for folder in ("measured", "published", "links"):
        (options.output / folder).mkdir(parents=True, exist_ok=True)
    campaign = Campaign(options.data, options.output)
    tasks: list[tuple[str, str, Callable[[str], str]]] = [
        *((recipe.name, recipe.name, campaign.measured) for recipe in RECIPES),
        *((f"{name}-published", name, campaign.published) for name in DEGREES),
        *((f"tx2-{processor}-planning", f"tx2-{processor}", campaign.planning) for processor in FLOORS),
        ("c10gx-dynamic", "c10gx", campaign.dynamic_power), ("pcie-latency", "pcie", campaign.link)]
    for label, name, fit in tasks:
        if not options.names or any(word in label for word in options.names):
            start = time.process_time()
            print(f"{fit(name)} [{time.process_time() - start:.1f} s]", flush=True)


if __name__ == "__main__":
    main()
