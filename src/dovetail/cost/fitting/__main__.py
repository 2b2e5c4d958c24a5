"""`python -m dovetail.cost.fitting --data DIR -o MODELS`: fit every shipped model again."""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from dovetail.cost.fitting.authors import DEGREES, factor_text, fit_factors
from dovetail.cost.fitting.link import COLUMNS, FILE, fit_link, link_text
from dovetail.cost.fitting.planning import fit_processor, planning_text
from dovetail.cost.fitting.quantity import fit_quantity
from dovetail.cost.fitting.recipes import RECIPES
from dovetail.cost.fitting.rows import FILES, LEVEL_COLUMNS, read_rows
from dovetail.cost.fitting.text import quantity_text, summary
from dovetail.files import replace_text
from dovetail.platform.quantity import parse_quantity
from dovetail.platform.schema import Table

FLOORS = {"cpu": "0.87 ms per measured loop plus random input and weights; the launch cost of a plan is assumed",
          "gpu": "1.4 ms per measured loop plus random input; the launch cost of a plan is assumed"}
"""What is removed from the rows for planning."""


def _table(path: Path) -> Table:
    return Table(path.name, tomllib.loads(path.read_text(encoding="utf-8")))


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit the models whose names contain one of the given words (all without any), and write their files."""
    parser = argparse.ArgumentParser(prog="python -m dovetail.cost.fitting", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the published CSV files")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the model sets (platform/models)")
    parser.add_argument("names", nargs="*", help="only models whose name contains one of these")
    options = parser.parse_args(arguments)
    for folder in ("measured", "published", "links"):
        (options.output / folder).mkdir(parents=True, exist_ok=True)
    for recipe in RECIPES:
        if not options.names or any(word in recipe.name for word in options.names):
            columns = read_rows(options.data / FILES[recipe.device], (*LEVEL_COLUMNS, *recipe.columns))
            model = fit_quantity(recipe, columns, lambda stage: print(f"  {stage}", file=sys.stderr, flush=True))
            replace_text(options.output / "measured" / f"{model.name}.toml", quantity_text(model))
            print(summary(model), flush=True)
    for name, degrees in DEGREES.items():
        if not options.names or any(word in f"{name}-published" for word in options.names):
            device, quantity = name.rsplit("-", 1)
            column = "latency_ms" if quantity == "latency" else quantity
            columns = read_rows(options.data / FILES[device], (*LEVEL_COLUMNS, column))
            value = columns[column] * (1e-3 if quantity == "latency" else 1.0)
            published = fit_factors(name, "s" if quantity == "latency" else quantity.upper(), columns, value)
            replace_text(options.output / "published" / f"{name}.toml", factor_text(published))
            print(f"{name} in the authors' form {degrees}: {published.mape:.1%} in sample")
    for processor, floor in FLOORS.items():
        if not options.names or any(word in f"tx2-{processor}-planning" for word in options.names):
            columns = read_rows(options.data / FILES[f"tx2-{processor}"], (*LEVEL_COLUMNS, "latency_ms", "energy_j"))
            measured = parse_quantity(_table(options.output / "measured" / f"tx2-{processor}-latency.toml"))
            description = f"Jetson TX2 {processor.upper()}, PyTorch convolution, float32, batch 1"
            plan = fit_processor(columns, f"tx2-{processor}", description, measured)
            replace_text(options.output / f"{plan.name}.toml", planning_text(plan, floor))
            print(f"{plan.name} for plans: {floor}")
    if not options.names or any(word in "pcie-latency" for word in options.names):
        link = fit_link(read_rows(options.data / FILE, COLUMNS))
        replace_text(options.output / "links" / f"{link.name}.toml", link_text(link))
        errors = ", ".join(f"{form} {e.mean:.2%} (p90 {e.p90:.2%})" for form, e in link.errors.items())
        print(f"{link.name}: {link.rows} rows, {errors}")


if __name__ == "__main__":
    main()
