"""Frozen dataclasses that are quick to make, for values of which a search makes thousands.

The type checker, which every change has to pass, takes `dataclass` here for that of the standard library and holds
`frozen=True` against all who would assign. At run time nothing stops them: setting fields past such a guard would take five
times as long.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    def dataclass(*, frozen: bool = False, eq: bool = True, **options: Any) -> Callable[[type], type]:
        """As the standard library's; a frozen value is compared and hashed by its fields, as it would be there."""
        def make(cls: type) -> type:
            hashed = frozen and eq and "__hash__" not in cls.__dict__
            return dataclasses.dataclass(cls, eq=eq, unsafe_hash=hashed, **options)
        return make
