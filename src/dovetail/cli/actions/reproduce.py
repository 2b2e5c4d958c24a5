"""What `dovetail reproduce` does."""

from __future__ import annotations

import argparse

from dovetail.cli.options import refuse_unused
from dovetail.cli.output import emit, progress_bar
from dovetail.files import check_folder, replace_folder
from dovetail.platform.device import ModelSet
from dovetail.platform.load import load_platform
from dovetail.reproduce import compact_2024_fcm, compact_2024_fibha, gp_2023, heterogeneity_2021, heterogeneity_figure_1, lq_2020
from dovetail.reproduce.compact_2024_fibha_tables import recorded as recorded_accelerators
from dovetail.reproduce.compact_2024_fibha_tables import text as accelerators_text
from dovetail.reproduce.gp_figures import figures

TABLES = "tables.txt"
"""The file that tells a folder of `reproduce` from anything else."""


def _check_used(options: argparse.Namespace) -> None:
    """Refuse what another paper, or another part of it, would read."""
    paper = " ".join((options.paper, *([options.part] if options.part else ()),
                      *([f"--figure {options.figure}"] if options.figure else ())))
    compact, blocks = options.paper == "compact-2024", options.paper == "heterogeneity-2021"
    read = {"--figure": (options.figure, blocks), "--models": (options.models, blocks and options.figure != 1),
            "--part": (options.part, compact), "--network": (options.network, compact and options.part == "fibha"),
            "--boards": (options.boards, options.paper == "lq-2020"),
            "--record": (options.record, options.paper == "lq-2020"
                         or (compact and not (options.part == "fibha" and options.network)))}
    refuse_unused(f"reproduce {paper}", {name: value for name, (value, used) in read.items() if not used},
                  "`dovetail reproduce --help` says what each belongs to")


def reproduce_command(options: argparse.Namespace) -> int:
    """Run `dovetail reproduce`."""
    if options.output:
        check_folder(options.output, TABLES)
    _check_used(options)
    for count in options.boards or ():
        load_platform(f"fic:{count}")
    with progress_bar() as progress:
        if options.paper == "gp-2023":
            found, text = gp_2023.reproduce(progress), gp_2023.text
        elif options.paper == "lq-2020":
            found = lq_2020.reproduce(progress, counts=options.boards or lq_2020.COUNTS, training=options.record)
            text = lq_2020.text
        elif options.paper == "compact-2024" and options.part == "fibha":
            found = (compact_2024_fibha.reproduce(options.network, progress) if options.network
                     else recorded_accelerators(options.record))
            text = accelerators_text
        elif options.paper == "compact-2024":
            found, text = compact_2024_fcm.reproduce(options.record), compact_2024_fcm.text
        elif options.figure == 1:
            found, text = heterogeneity_figure_1.reproduce(progress), heterogeneity_figure_1.text
        else:
            models = ModelSet(options.models or ModelSet.PLANNING.value)
            found, text = heterogeneity_2021.reproduce(models, progress), heterogeneity_2021.text
    if options.output:
        drawn = {gp_2023.text: figures, heterogeneity_2021.text: heterogeneity_2021.figures,
                 heterogeneity_figure_1.text: heterogeneity_figure_1.figures}.get(text)
        with replace_folder(options.output, TABLES) as folder:
            for name, drawing in (drawn(found) if drawn is not None else {}).items():
                (folder / name).write_text(drawing, encoding="utf-8")
            (folder / TABLES).write_text(text(found) + "\n", encoding="utf-8")
    emit(options.json, found, lambda: text(found))
    return 0
