"""A fetcher as a process: ``python fetcher_process.py ADDRESS`` asks for a unit, prints what was allowed of it, and the bytes of memory that this took."""

from __future__ import annotations

import sys

import psutil

from tests.trainer.run.reading.test_unit_reader import unit
from trainer.run.reading.unit_fetching import RemoteFetcher
from trainer.wire.flight.error_documents import Unreachable


def main(address: str) -> None:
    """Raises :class:`AssertionError` for a unit that is taken."""
    process, fetcher = psutil.Process(), RemoteFetcher(address)
    before = process.memory_info().rss
    try:
        fetcher.fetch(unit(0, 5), lambda size: True)
    except Unreachable as error:
        print(error.allowed)
        print(process.memory_info().rss - before)
    else:
        raise AssertionError("a unit that is too long must be refused")
    finally:
        fetcher.close()


if __name__ == "__main__":
    main(sys.argv[1])
