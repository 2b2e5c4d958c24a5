"""The command that counts many layers, and judges the area model by them."""

from __future__ import annotations

import argparse
from pathlib import Path

from dovetail.cli.options import Commands, add_json
from dovetail.cli.output import emit, keeping, progress_bar
from dovetail.errors import UsageError


def add_commands(commands: Commands) -> None:
    """`campaign`."""
    sub = commands.add("campaign", _campaign,
                       "synthesize many single layers, and judge the area model by those it was not fitted to",
                       "dovetail campaign area --family ecp5 --family ultrascale --json area.json")
    sub.add_argument("what", choices=("area",), help="what is counted: the FPGA area of layers")
    sub.add_argument("--family", action="append", default=[], metavar="NAME",
                     help="ecp5, ultrascale (xcu), ultrascale+ (xcup), cyclonev, cyclone10gx; repeatable (default: first two)")
    sub.add_argument("--layers", type=int, default=64, metavar="N", help="how many layers (default: %(default)s)")
    sub.add_argument("--store", type=Path, metavar="DIR",
                     help="folder of results; a second run counts again only what changed (default: in the cache)")
    sub.add_argument("--jobs", type=int, default=1, metavar="N",
                     help="processes, each with a synthesizer of its own (default: %(default)s)")
    sub.add_argument("--fit", action="store_true", help="fit the coefficients anew, and judge those in place of the shipped ones")
    sub.add_argument("-o", "--output", type=Path, metavar="DIR",
                     help="with --fit: write the models (dhm-FAMILY.toml) to this folder")
    add_json(sub)


def _campaign(options: argparse.Namespace) -> int:
    from dovetail.files import replace_text
    from dovetail.measure.area_campaign import Store, default_store, family_of, run_campaign
    from dovetail.measure.area_layers import designed_area_layers
    from dovetail.measure.area_model import fit_model, fitted_text, judge, judgement_json, judgement_table
    if options.layers < 1:
        raise UsageError(f"--layers {options.layers}: must be at least 1")
    if options.output is not None and not options.fit:
        raise UsageError(f"-o {options.output}: nothing to write; add --fit")
    families = tuple(dict.fromkeys(family_of(name) for name in options.family or ("ecp5", "ultrascale")))
    store = options.store or default_store()
    with keeping(store, "what was counted"), progress_bar() as progress:
        counted = run_campaign(designed_area_layers(options.layers), families, Store(store), progress, jobs=options.jobs)
    fits = {family: fit_model(family, layers) for family, layers in counted.items()} if options.fit else {}
    found = {family: judge(family, layers, fits.get(family)) for family, layers in counted.items()}
    for family in fits if options.output is not None else ():
        replace_text(options.output / f"dhm-{family}.toml", fitted_text(found[family], fits[family]))
    emit(options.json, {"area_model": {family: judgement_json(one) for family, one in found.items()}, "fitted": fits},
         lambda: judgement_table(list(found.values())))
    return 0
