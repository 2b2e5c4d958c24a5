"""The command that runs papers again."""

from __future__ import annotations

from pathlib import Path

from dovetail.cli.options import Commands
from dovetail.platform.device import ModelSet

PAPERS = ("gp-2023", "heterogeneity-2021", "compact-2024", "lq-2020")
ALL = "all"


def add_commands(commands: Commands) -> None:
    """`reproduce`."""
    sub = commands.add("reproduce", "a paper's figures and tables on our models, printed values beside ours",
                       "dovetail reproduce heterogeneity-2021 --json -")
    sub.add_argument("paper", choices=(*PAPERS, ALL), help="which one, or all of them, item by item")
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
    sub.add_argument("--fresh", action="store_true",
                     help="compact-2024, lq-2020, all: compute accelerators anew (half an hour), simulate Figure 4.8's program; "
                          "says what making other records anew takes")
    sub.add_argument("--workers", type=int, default=1, metavar="N",
                     help="processes that compute parts of papers side by side; with --cluster, workers to wait for "
                          "(default: %(default)s)")
    sub.add_argument("--cluster", metavar="ADDRESS", help="compute on the workers of this Dask scheduler; 'local' starts N here")
    sub.add_argument("-o", "--output", type=Path,
                     help="write a page of the whole paper to this folder, as Markdown and HTML, with its tables and drawings; "
                          "of all papers a folder each")
