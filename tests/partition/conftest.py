"""Worlds whose tensors are a few bytes need packets that are smaller still."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def small_packets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail.partition.problem.PACKET_BYTES", 4)
