"""A test finds the logging that each test begins with."""

from __future__ import annotations

import logging
import sys

import pytest

_SEEN: list[list[logging.Handler]] = []


@pytest.mark.parametrize("number", range(2))
def test_a_command_that_writes_its_log_leaves_no_handler(number: int) -> None:
    _SEEN.append([type(one) for one in logging.root.handlers if isinstance(one, logging.StreamHandler) and one.stream is sys.stderr])  # fmt: skip
    logging.basicConfig(level=logging.INFO, force=True)
    assert _SEEN[-1] == []
