"""The command that runs papers again."""

from __future__ import annotations

import argparse
from pathlib import Path

from dovetail.cli.options import Commands, add_json, refuse_unused
from dovetail.cli.output import emit, progress_bar
from dovetail.platform.device import ModelSet

TABLES = "tables.txt"
"""The file that tells a folder of `reproduce` from anything else."""
PAPERS = ("gp-2023", "heterogeneity-2021", "compact-2024", "lq-2020")


def add_commands(commands: Commands) -> None:
    """`reproduce`."""
    sub = commands.add("reproduce", _reproduce, "a paper's figures and tables on our models, printed values beside ours",
                       "dovetail reproduce heterogeneity-2021 --json -")
    sub.add_argument("paper", choices=PAPERS, help="which one")
    sub.add_argument("--models", choices=[ModelSet.PLANNING.value, ModelSet.MEASURED.value],
                     help="heterogeneity-2021: the FPGA with the hardware we generate, or with area and clock of the authors' "
                          "rows; processors are without their measuring loop in both (default: planning)")
    sub.add_argument("--figure", type=int, choices=(1, 4),
                     help="heterogeneity-2021: 1, single layers on FPGA and GPU; 4, building blocks and Table I (default)")
    sub.add_argument("--part", choices=("fcm", "fibha"),
                     help="compact-2024: fcm, fused modules on a GPU (paper III, default); fibha, hybrid accelerators (I, II)")
    sub.add_argument("--network", action="append", metavar="NAME",
                     help="compact-2024 fibha: search anew for a network of the zoo, which takes minutes; repeatable "
                          "(default: the record that comes along)")
    sub.add_argument("--record", type=Path, metavar="FILE",
                     help="compact-2024: a file of bench/gpu_fcm.py, or of bench/fibha.py; lq-2020: of bench/lq_training.py "
                          "(default: those that come along)")
    sub.add_argument("--boards", action="append", type=int, metavar="N",
                     help="lq-2020: boards of FiC; repeatable (default: several from 1 to 24, which takes minutes)")
    sub.add_argument("-o", "--output", type=Path,
                     help="write the tables, and the figures of gp-2023 and heterogeneity-2021 as SVG, to this folder")
    add_json(sub)


def _check_used(options: argparse.Namespace) -> None:
    """Refuse what another paper, or another part of it, would read."""
    paper = " ".join((options.paper, *([options.part] if options.part else ()),
                      *([f"--figure {options.figure}"] if options.figure else ())))
    compact, blocks = options.paper == "compact-2024", options.paper == "heterogeneity-2021"
    used = {"--figure": blocks, "--models": blocks and options.figure != 1, "--part": compact,
            "--network": compact and options.part == "fibha", "--boards": options.paper == "lq-2020",
            "--record": options.paper == "lq-2020" or (compact and not (options.part == "fibha" and options.network))}
    given = {"--figure": options.figure, "--models": options.models, "--part": options.part, "--network": options.network,
             "--boards": options.boards, "--record": options.record}
    refuse_unused(f"reproduce {paper}", {name: value for name, value in given.items() if not used[name]},
                  "`dovetail reproduce --help` says what each belongs to")


def _reproduce(options: argparse.Namespace) -> int:
    from dovetail.files import check_folder, replace_folder
    from dovetail.platform.load import load_platform
    from dovetail.reproduce import compact_2024_fcm, gp_2023, heterogeneity_2021, heterogeneity_figure_1
    if options.output:
        check_folder(options.output, TABLES)
    _check_used(options)
    for count in options.boards or ():
        load_platform(f"fic:{count}")
    with progress_bar() as progress:
        if options.paper == "gp-2023":
            found, text = gp_2023.reproduce(progress), gp_2023.text
        elif options.paper == "lq-2020":
            from dovetail.reproduce import lq_2020
            found = lq_2020.reproduce(progress, counts=options.boards or lq_2020.COUNTS, training=options.record)
            text = lq_2020.text
        elif options.paper == "compact-2024" and options.part == "fibha":
            from dovetail.reproduce import compact_2024_fibha, compact_2024_fibha_tables
            found = (compact_2024_fibha.reproduce(options.network, progress) if options.network
                     else compact_2024_fibha_tables.recorded(options.record))
            text = compact_2024_fibha_tables.text
        elif options.paper == "compact-2024":
            found, text = compact_2024_fcm.reproduce(options.record), compact_2024_fcm.text
        elif options.figure == 1:
            found, text = heterogeneity_figure_1.reproduce(progress), heterogeneity_figure_1.text
        else:
            models = ModelSet(options.models or ModelSet.PLANNING.value)
            found, text = heterogeneity_2021.reproduce(models, progress), heterogeneity_2021.text
    if options.output:
        from dovetail.reproduce.gp_figures import figures
        drawn = {gp_2023.text: figures, heterogeneity_2021.text: heterogeneity_2021.figures}.get(text)
        with replace_folder(options.output, TABLES) as folder:
            for name, drawing in (drawn(found) if drawn is not None else {}).items():
                (folder / name).write_text(drawing, encoding="utf-8")
            (folder / TABLES).write_text(text(found) + "\n", encoding="utf-8")
    emit(options.json, found, lambda: text(found))
    return 0
