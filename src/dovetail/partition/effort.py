"""How far a search has come: what deadlines are compared with."""

from __future__ import annotations

import time


def worked() -> float:
    """Seconds of computing on this thread so far."""
    return time.thread_time()
