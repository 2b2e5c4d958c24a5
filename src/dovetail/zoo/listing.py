"""The zoo's table for people and for programs."""

from __future__ import annotations

from typing import Any

from dovetail.zoo.table import TABLE, Published, ZooEntry

HEADINGS = ("name", "network", "size", "parameters", "MACs", "published parameters", "published MACs")


def listing() -> str:
    """An aligned table: what each network counts here, and what its source prints; sources below."""
    rows = [HEADINGS, *(_row(e) for e in TABLE.values())]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADINGS))]
    lines = ["  ".join(f"{cell:<{w}}" if i < 2 else f"{cell:>{w}}" for i, (cell, w) in enumerate(zip(row, widths, strict=True)))
             for row in rows]
    sources = [f"{e.name:<{widths[0]}}  parameters: {e.published_parameters.source}\n{'':<{widths[0]}}  MACs: "
               f"{e.published_macs.source}" for e in TABLE.values()]
    notes = ("Parameters are trainable ones (BatchNorm: gamma and beta); MACs are those of convolutions, fully connected\n"
             "layers and matrix products for one image. A published figure with ~ is coarsely rounded or counts other things.")
    return "\n".join([*(line.rstrip() for line in lines), "", notes, "", "Sources of the published figures", *sources])


def listing_json() -> list[dict[str, Any]]:
    """One object per network, numbers as numbers."""
    return [{"name": e.name, "title": e.title, "size": e.size, "least_size": e.least_size, "width": e.width,
             "widths": None if e.widths is None else list(e.widths), "free_batch": e.free_batch, "parameters": e.parameters,
             "macs": e.macs, "published_parameters": _figure(e.published_parameters), "published_macs": _figure(e.published_macs)}
            for e in TABLE.values()]


def _figure(published: Published) -> dict[str, Any]:
    return {"value": published.value, "tolerance": published.tolerance, "source": published.source}


def _row(entry: ZooEntry) -> tuple[str, ...]:
    return (entry.name, entry.title, f"{entry.size}x{entry.size}", f"{entry.parameters:,}", _short(entry.macs),
            _printed(entry.published_parameters, f"{entry.published_parameters.value:,.0f}"),
            _printed(entry.published_macs, _short(entry.published_macs.value)))


def _printed(published: Published, text: str) -> str:
    return f"~{text}" if published.tolerance > 0.015 else text


def _short(macs: float) -> str:
    return f"{macs / 1e9:.3f} G" if macs >= 1e9 else f"{macs / 1e6:.1f} M"
