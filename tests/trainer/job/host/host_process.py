"""A program: one host that trains with others over real sockets, ``python -m tests.trainer.job.host.host_process RANK HOSTS``.

It prints its address, reads those of all hosts as a JSON line, and prints for each way of training the digest of all its arrays.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile

from tests.trainer.job.host.training_ways import ROWS, WAYS, batches_of, config_of
from trainer.job.host.channels import Channels, names_of
from trainer.job.host.exchange_service import ExchangeService
from trainer.job.host.host_exchange import HostExchange
from trainer.job.host.mailbox import Mailbox
from trainer.job.host.sharded_weights import empty_batch
from trainer.run.weights import run_state
from trainer.wire.flight.addresses import Address

#: Every way with the dense part as it is; then with that in TensorFlow, which segments always have.
ALL_WAYS = [
    *((name, way, False) for name, way in WAYS.items()),
    *((f"{name} in TensorFlow", way, True) for name, way in WAYS.items()),
]


def digest_of(arrays) -> str:
    """Of the names and bytes of arrays."""
    found = hashlib.sha256()
    for name in sorted(arrays):
        found.update(name.encode() + arrays[name].tobytes())
    return found.hexdigest()


def main(rank: int, hosts: int) -> None:
    """Train in every way, each an attempt."""
    options = config_of(tempfile.mkdtemp(), "dlrm", deterministic=True, top_mlp=(64, 32), staleness=2)
    mailbox = Mailbox()
    with ExchangeService(Address("127.0.0.1", 0), mailbox) as service:
        print(service.address, flush=True)
        addresses = [Address.parse(one) for one in json.loads(sys.stdin.readline())]
        prepared, batches = batches_of(options)
        none = empty_batch(prepared.layout, ROWS, prepared.head)
        padded = [*batches, *[none] * (-len(batches) % hosts)]
        for attempt, (name, (make, train), in_tensorflow) in enumerate(ALL_WAYS, start=1):
            if in_tensorflow:
                run_state.is_compiled = lambda layout, config: False
            each = [
                HostExchange(mailbox, attempt, rank, addresses, channel=channel, check=lambda: None)
                for channel in names_of(None)
            ]
            weights = make(prepared, options, Channels.of(each))
            train(weights, padded[rank::hosts])
            print(json.dumps([name, digest_of(weights.arrays()), digest_of(weights.dense_arrays())]), flush=True)
            sys.stdin.readline()  # all hosts are done
            for one in each:
                one.close()
            weights.abandon_step()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
