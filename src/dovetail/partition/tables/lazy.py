"""Arrays that may never be needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.hardware.shares import Floats


class Later:
    """An array worked out when it is first asked for: energies, which plans for latency alone never look at."""

    __slots__ = ("_found", "_make")

    def __init__(self, make: Callable[[], Floats]) -> None:
        self._make, self._found = make, list[Floats]()

    def array(self) -> Floats:
        if not self._found:
            self._found.append(self._make())
        return self._found[0]

    def take(self, index: Any) -> Later:
        """Some of it, worked out no sooner."""
        return Later(lambda: self.array()[index])
