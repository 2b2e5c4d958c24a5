"""Values that are quick to make behave as frozen dataclasses of the standard library do, where nobody assigns."""

from __future__ import annotations

import dataclasses

import pytest

from dovetail.values import dataclass


@dataclass(frozen=True, slots=True)
class Quick:
    number: int
    words: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Plain:
    number: int
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Itself:
    number: int


@pytest.mark.parametrize("arguments", [(1,), (2, ("a", "b"))])
def test_values_are_compared_and_hashed_by_their_fields(arguments: tuple[object, ...]) -> None:
    quick, plain = Quick(*arguments), Plain(*arguments)  # type: ignore[arg-type]
    assert quick == Quick(*arguments)  # type: ignore[arg-type]
    assert hash(quick) == hash(plain)
    assert quick != dataclasses.replace(quick, number=7)
    assert repr(quick) == repr(plain).replace("Plain", "Quick")
    assert [f.name for f in dataclasses.fields(quick)] == [f.name for f in dataclasses.fields(plain)]


def test_values_that_are_not_compared_by_their_fields_stay_themselves() -> None:
    one = Itself(1)
    assert one != Itself(1)
    assert len({one, one, Itself(1)}) == 2


def test_slots_take_no_other_fields() -> None:
    with pytest.raises(AttributeError):
        Quick(1).other = 2  # type: ignore[attr-defined]
