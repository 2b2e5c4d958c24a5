"""The table of docs/method/mlperf-tiny.md, from the record."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

HEAD = ("| task, board | at most | frames/s | one by one | theirs, with host | LUT | DSP | blocks | MHz | LUT·ms | area by |",
        "|---|---|---|---|---|---|---|---|---|---|---|")


def table(rows: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A line for every design of the highest frame rate; theirs in brackets."""
    yield from HEAD
    for row in rows.values():
        if row["goal"] == "throughput":
            yield line(row)


def line(row: Mapping[str, Any]) -> str:
    """One design beside the published one."""
    theirs = row["theirs"] or {}
    known = theirs if "lut" in theirs else {}
    where, most = f"{row['task'].upper()}, {row['board']}", "their area" if row["budget"] == "theirs" else "the board"
    rate, clock = f"{theirs['frames_per_s']:,.0f}" if theirs else "–", f"{row['clock_hz'] / 1e6:.0f}"
    if "reason" in row and not row.get("synthesized", {}).get("fits"):
        times = re.search(r"takes ([\d.]+) times what may be used of ([\w ]+?) \(", row["reason"])
        why = f"does not fit: at least {times[1]} times {times[2]}" if times else "does not fit"
        return f"| {where} | {most} | {why} | – | {rate} | – | – | – | {clock} | – | – |"
    area = row.get("synthesized", row["area_model"])
    logic, blocks = next(k for k in area if k.startswith("lut")), next(k for k in area if k.startswith("bram"))
    beside = {logic: known.get("lut"), "dsp": known.get("dsp"), blocks: known.get("bram36")}
    parts = [f"{area[k]:,.0f}" + (f" ({v:,.0f})" if v is not None else "") for k, v in beside.items()]
    product = f"{area[logic] / row['frames_per_s'] * 1e3:,.0f}"
    if known:
        product += f" ({known['lut'] / known['frames_per_s'] * 1e3:,.0f})"
    by = "Yosys" if "synthesized" in row else "model"
    rates = f"{row['frames_per_s']:,.0f}{'*' if 'simulated' in row else ''} | {row['one_by_one_per_s']:,.0f}"
    return f"| {where} | {most} | {rates} | {rate} | {' | '.join(parts)} | {clock} | {product} | {by} |"
