"""LQ multi-FPGA 2020, boards: what was simulated over several, and what ports, links and loaded weights cost by synthesis.

All of it is in the record of `bench/lq.py`; nothing is computed here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.terminal import table

RUNS = {"full_pair": "conv3 and conv4", "full_cut": "conv1 to fc6", "full_network": "conv1 to fc8",
        "reduced_network": "conv1 to fc8 of 99x99"}
"""Keys of simulations, and their layers: at full width of 227x227 images, or with an eighth of the channels."""
PARTS = {"BRAM": "bram36_part", "LUT": "lut_part", "DSP": "dsp_part"}


def simulated_boards(measured: Mapping[str, Any]) -> dict[str, Mapping[str, Mapping[str, float]]]:
    """By layers that were simulated: the parts of every board that they take."""
    return {layers: measured[key]["boards"] for key, layers in RUNS.items() if key in measured}


def boards_lines(measured: Mapping[str, Any]) -> list[str]:
    """Tables of all of it for a terminal."""
    return ["AlexNet over boards of FiC, all boards and links simulated at once, one frame; 227x227 at full width, 99x99 with an "
            "eighth of the channels:",
            _runs(measured), "", "Parts of each board in those simulations, ends of links included, by the model:",
            _parts(measured), "", *_traffic(measured),
            "Ends of a link by circuits over it, by Yosys:", _ends(measured["link_ends"]), "",
            "The host's port by its width, by Yosys, for a layer of 785 clocks:", _ports(measured["host_ports"]), "",
            "Weights in memory that a stream fills, against constants, folded engines, by Yosys:",
            _loaded(measured["loaded_weights"])]


def _runs(measured: Mapping[str, Any]) -> str:
    rows = []
    for key, layers in RUNS.items():
        if (run := measured.get(key)) is not None:
            rows.append((layers, str(len(run["boards"])), ", ".join(run["divided"]), f"{run['frame_cycles'][0]:,}",
                         f"{run['values']:,} {'right' if run['bit_exact'] else 'WRONG'}", _compared(run),
                         f"{run['simulated_cycles_per_s']:,.0f}"))
    return table(("layers", "boards", "divided", "clocks to the last value", "values at the host", "values inside",
                  "clocks a second simulated"), rows)


def _compared(run: Mapping[str, Any]) -> str:
    """Of a run with probes, how many values of streams between layers were compared."""
    if "streams" not in run:
        return "not looked at"
    right = run["first_wrong"] is None and run["streams_right"] == len(run["streams"])
    return f"{run['values_compared']:,} in {len(run['streams'])} streams {'right' if right else 'WRONG'}"


def _parts(measured: Mapping[str, Any]) -> str:
    rows = [(layers, board, *(f"{parts[key]:.1%}" for key in PARTS.values()))
            for layers, boards in simulated_boards(measured).items() for board, parts in boards.items()]
    return table(("layers", "board", *PARTS), rows)


def waiting_clocks(run: Mapping[str, Any]) -> dict[str, int]:
    """By tensor that crosses links: clocks from its last value on any board that makes it to the last that another board reads,
    the most over readers. Besides the links, what a reader was not yet ready for is in it."""
    made: dict[str, dict[str, int]] = {}
    for where, stream in run["streams"].items():
        if not _reads(where):
            made.setdefault(stream["of"], {})[run["on"][_segment(where)]] = stream["clocks"][1]
    found: dict[str, int] = {}
    for where, stream in run["streams"].items():
        boards, tensor = made.get(stream["of"], {}), stream["of"]
        if _reads(where) and set(boards) - {run["on"][_segment(where)]}:
            found[tensor] = max(found.get(tensor, 0), stream["clocks"][1] - max(boards.values()))
    return found


def _segment(where: str) -> str:
    return where.split(".")[0]


def _reads(where: str) -> bool:
    """Whether a stream comes into a segment."""
    return where.split(".")[1].startswith("in")


def _traffic(measured: Mapping[str, Any]) -> list[str]:
    """What crossed links in simulations of the whole network."""
    return [line for key, what in RUNS.items() if "traffic" in measured.get(key, {}) for line in _crossed(what, measured[key])]


def _crossed(what: str, run: Mapping[str, Any]) -> list[str]:
    """Cells of one frame, and what it waited for."""
    rows = [(f"{t['from']} to {t['to']}", f"{t['cells']:,}", f"{t['data_cells']:,}", f"{t['busy']:.3%}") for t in run["traffic"]]
    return [f"Cells over links, one frame of {what}:",
            table(("link", "cells", "with data", "of all clocks"), rows),
            "From the last value made to the last one read on another board: " + "; ".join(
                f"{tensor} {clocks:,} clocks" for tensor, clocks in waiting_clocks(run).items())
            + f"; of {run['frame_cycles'][0]:,} clocks of the frame.", ""]


def _ends(ends: Mapping[str, Any]) -> str:
    return table(("circuits", "end", "LUT", "registers", "BRAM36"),
                 [(count, end, *(f"{area[key]:,.0f}" for key in ("lut", "register", "bram36")))
                  for count, both in ends.items() for end, area in both.items()])


def _ports(ports: Mapping[str, Any]) -> str:
    return table(("bits", "clocks a frame", "LUT", "registers"),
                 [(bits, *(f"{row[key]:,}" for key in ("clocks_per_frame", "lut", "register"))) for bits, row in ports.items()])


def _loaded(layers: Mapping[str, Any]) -> str:
    rows: list[Sequence[str]] = []
    for name, row in layers.items():
        for form, said in (("rom", "constants"), ("loaded", f"loaded, {row['beats_of_a_set'] * row['bytes_of_a_beat']:,} bytes")):
            rows.append((name, row["fold"], said, *(f"{row[form][key]:,.1f}" for key in ("lut", "ff", "bram", "dsp"))))
    return table(("layer", "fold", "weights", "LUT", "registers", "BRAM36", "DSP"), rows)
