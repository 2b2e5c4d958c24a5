"""What commands on device models do: measure a device, judge models by measured rows, by layers that are counted."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dovetail.cli.options import refuse_unused
from dovetail.cli.output import emit, keeping, progress_bar, warn
from dovetail.cost.validation import validate, validation_json, validation_table
from dovetail.errors import UsageError
from dovetail.explore.area_campaign import default_store, family_of, run_campaign
from dovetail.explore.area_layers import designed_area_layers
from dovetail.explore.area_model import fit_model, fitted_text, judge, judgement_json, judgement_table
from dovetail.explore.crew import local_crew
from dovetail.explore.store import ResultStore
from dovetail.files import replace_text
from dovetail.measure.board import Calibration, calibrate, read_measurements
from dovetail.measure.campaign import Measured, Record, measure
from dovetail.measure.energy import cpu_counter, gpu_counter
from dovetail.measure.layers import designed_layers
from dovetail.words import plural


def calibrate_command(options: argparse.Namespace) -> int:
    """Run `dovetail calibrate`."""
    if options.output.suffix != ".toml":
        raise UsageError(f"{options.output}: a board file ends in .toml; give such a name")
    if options.source is not None:
        refuse_unused("calibrate --from", {"--threads": options.threads, "--record": options.record}, "nothing is measured")
        record = read_measurements(options.source, options.device)
    elif options.device is None:
        raise UsageError("calibrate: nothing to measure; add --device cpu, --device gpu, or --from FILE")
    else:
        record = _measured(options)
    found = calibrate(record, options.output.stem)
    replace_text(options.output, found.text)
    emit(options.json, _calibration_json(options.output, record, found), lambda: _calibration_text(options.output, record, found))
    return 0


def _calibration_json(path: Path, record: Record, found: Calibration) -> dict[str, object]:
    """The contract of `dovetail calibrate --json`: the board file and how far the models miss layers left out of their fit."""
    fit = found.fit
    return {"schema": 1, "board": str(path), "device": record.device, "kind": record.kind,
            "groups": {group: {"layers": fit.counts[group], "mean": errors.mean, "p90": errors.p90}
                       for group, errors in fit.errors.items()},
            "total": {"mean": fit.total.mean, "p90": fit.total.p90}}


def _calibration_text(path: Path, record: Record, found: Calibration) -> str:
    fit = found.fit
    lines = [f"{group:<15}{fit.counts[group]:>4} {plural(fit.counts[group], 'layer'):<9}left out {errors.mean:>6.1%}   "
             f"p90 {errors.p90:>6.1%}" for group, errors in fit.errors.items()]
    return "\n".join([*lines, f"{path}: {record.device}, all layers {fit.total.mean:.1%} (p90 {fit.total.p90:.1%}); "
                      f"plan for it with -p {path if '/' in str(path) else f'./{path}'}"])


def _measured(options: argparse.Namespace) -> Record:
    device: Measured
    if options.device == "gpu":
        refuse_unused("calibrate --device gpu", {"--threads": options.threads}, "they are those of a CPU")
        from dovetail.measure.cuda import CudaDevice
        device = CudaDevice(gpu_counter())
    else:
        threads = 1 if options.threads is None else options.threads
        if threads < 1:
            raise UsageError(f"--threads {threads}: must be at least 1")
        from dovetail.measure.processor import ProcessorDevice
        device = ProcessorDevice(threads, cpu_counter())
    record_path = options.record or options.output.with_suffix(".measurements.json")
    print(f"measuring {device.name}; interrupt at will, {record_path} keeps what is done", file=sys.stderr)
    with keeping(record_path, "what was measured"), progress_bar() as progress:
        return measure(device, options.device, designed_layers(), {}, record_path, progress, 2 if options.device == "cpu" else 1,
                       f"dovetail calibrate --device {options.device}")


def campaign_command(options: argparse.Namespace) -> int:
    """Run `dovetail campaign`."""
    if options.layers < 1:
        raise UsageError(f"--layers {options.layers}: must be at least 1")
    if options.output is not None and not options.fit:
        raise UsageError(f"-o {options.output}: nothing to write; add --fit")
    families = tuple(dict.fromkeys(family_of(name) for name in options.family or ("ecp5", "ultrascale")))
    store = options.store or default_store()
    with keeping(store, "what was counted"), ResultStore(store) as results, local_crew(options.jobs) as crew, \
            progress_bar() as progress:
        counted = run_campaign(designed_area_layers(options.layers), families, results, crew, progress)
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
