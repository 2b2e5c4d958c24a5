"""Words of numbers, singular and plural; long names made to fit."""

from __future__ import annotations


def plural(number: float, noun: str, several: str = "") -> str:
    """The noun that follows a number; `several` is its plural where that is not the noun with an s."""
    return noun if number == 1 else several or f"{noun}s"


def counted(number: int, noun: str, several: str = "") -> str:
    """`1 plan`, `2 plans`, `1,000 plans`."""
    return f"{number:,} {plural(number, noun, several)}"


def shortened(name: str, width: int) -> str:
    """A long name without its middle: both ends tell layers apart."""
    return name if len(name) <= width else f"{name[:(width - 1) // 2]}…{name[len(name) - width // 2:]}"
