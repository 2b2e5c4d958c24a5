"""The worlds of the partitioner's tests, with packets as small as theirs."""

from __future__ import annotations

from tests.partition.conftest import small_packets as small_packets
