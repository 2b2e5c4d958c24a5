"""Words of numbers: singular and plural."""

from __future__ import annotations


def counted(number: int, noun: str, several: str = "") -> str:
    """`1 plan`, `2 plans`, `1,000 plans`; `several` is the plural where it is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else several or f'{noun}s'}"
