"""Tasks of one resource side by side: what overlaps in time gets a track of its own."""

from __future__ import annotations

from collections.abc import Sequence

NANOSECONDS = 1e9
"""Times are compared on a grid of whole nanoseconds, so that float dust is no overlap."""


def ticks(time_s: float) -> int:
    """A time on the nanosecond grid."""
    return round(time_s * NANOSECONDS)


def tracks(spans_s: Sequence[tuple[float, float]]) -> tuple[int, ...]:
    """A track number per (start, stop), the lowest that is free; streaming devices run several nodes at once."""
    chosen = [0] * len(spans_s)
    free_at: list[int] = []
    for index in sorted(range(len(spans_s)), key=lambda i: (ticks(spans_s[i][0]), -ticks(spans_s[i][1]), i)):
        start, stop = (ticks(t) for t in spans_s[index])
        track = next((n for n, free in enumerate(free_at) if free <= start), len(free_at))
        free_at[track : track + 1] = [stop]
        chosen[index] = track
    return tuple(chosen)


def resource_order(used: Sequence[str], devices: Sequence[str]) -> tuple[str, ...]:
    """Devices in the platform's order, then links in the order of their first use."""
    seen = dict.fromkeys(used)
    return (*(d for d in devices if d in seen), *(u for u in seen if u not in set(devices)))
