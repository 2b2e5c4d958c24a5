"""Chromium as tests use it: what is missing fails a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lib.chromium import Browser, MissingBrowserError, PageError, Tab, beyond
from lib.chromium import chromium as opened

__all__ = ["Browser", "PageError", "Tab", "beyond", "chromium"]


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser for as long as the block runs."""
    try:
        with opened() as browser:
            yield browser
    except MissingBrowserError as error:
        pytest.fail(str(error))
