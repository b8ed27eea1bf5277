"""A reader as a process, for tests that kill it: ``python reader_process.py <seconds per fragment> [token]`` prints its address."""

from __future__ import annotations

import sys
import time

from tests.trainer.run.reading.test_unit_reader import DATA, reader_of
from trainer.run.reading.reader_service import ReaderService
from trainer.wire.flight.addresses import Address


def main(secs: float, token: str = "") -> None:
    """Serve until the process is killed."""

    def read(_solution, fragment):
        time.sleep(secs)
        return DATA.tables[fragment.path]

    with ReaderService(Address("127.0.0.1", 0), reader_of(read, kept_bytes=0), token=token) as service:
        print(service.address, flush=True)
        time.sleep(3600)


if __name__ == "__main__":
    main(float(sys.argv[1]), *sys.argv[2:])
