"""An embedding worker in a process of its own, which a test kills and starts again at the same port.

``python -m tests.support.worker_process PORT SERVERS`` loads the code once, and forks a worker for each line that it reads.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tests.support.forked_process import ForkedProcess, fork_for_each_line
from tests.support.processes import PATIENCE_SECS
from trainer.job.launch.worker_process import WorkerOptions, serve_worker, warm_up
from trainer.wire.flight.addresses import Address
from trainer.wire.flight.connections import listen


class WorkerProcess(ForkedProcess):
    """A worker over servers at addresses."""

    def __init__(self, servers: Sequence[Address]) -> None:
        super().__init__("tests.support.worker_process", "PORT", ",".join(map(str, servers)))


def main() -> None:
    port, servers = int(sys.argv[1]), tuple(Address.parse(one) for one in sys.argv[2].split(","))
    options = WorkerOptions(servers, server_patience_secs=PATIENCE_SECS)
    warm_up()
    fork_for_each_line(lambda: serve_worker(options, listen(Address("127.0.0.1", port))))


if __name__ == "__main__":
    main()
