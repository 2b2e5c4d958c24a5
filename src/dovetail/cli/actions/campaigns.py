"""What commands that judge models do: by measured rows, by layers that are counted."""

from __future__ import annotations

import argparse

from dovetail.cli.output import emit, keeping, progress_bar, warn
from dovetail.cost.validation import validate, validation_json, validation_table
from dovetail.errors import UsageError
from dovetail.files import replace_text
from dovetail.measure.area_campaign import AreaResults, default_store, family_of, run_campaign
from dovetail.measure.area_layers import designed_area_layers
from dovetail.measure.area_model import fit_model, fitted_text, judge, judgement_json, judgement_table


def campaign_command(options: argparse.Namespace) -> int:
    """Run `dovetail campaign`."""
    if options.layers < 1:
        raise UsageError(f"--layers {options.layers}: must be at least 1")
    if options.output is not None and not options.fit:
        raise UsageError(f"-o {options.output}: nothing to write; add --fit")
    families = tuple(dict.fromkeys(family_of(name) for name in options.family or ("ecp5", "ultrascale")))
    store = options.store or default_store()
    with keeping(store, "what was counted"), progress_bar() as progress:
        counted = run_campaign(designed_area_layers(options.layers), families, AreaResults(store), progress, jobs=options.jobs)
    fits = {family: fit_model(family, layers) for family, layers in counted.items()} if options.fit else {}
    found = {family: judge(family, layers, fits.get(family)) for family, layers in counted.items()}
    for family in fits if options.output is not None else ():
        replace_text(options.output / f"dhm-{family}.toml", fitted_text(found[family], fits[family]))
    emit(options.json, {"area_model": {family: judgement_json(one) for family, one in found.items()}, "fitted": fits},
         lambda: judgement_table(list(found.values())))
    return 0


def validate_models_command(options: argparse.Namespace) -> int:
    """Run `dovetail validate-models`."""
    with progress_bar() as progress:
        found = validate(options.data, (lambda stage: progress(stage, 0, 1)) if options.refit else None)
    if options.json is not None:
        warn(found.notes)
    emit(options.json, validation_json(found), lambda: validation_table(found))
    return 0
