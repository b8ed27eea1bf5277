"""Hosts that score find each other, or say which one has not begun."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.support.processes import free_port
from trainer.errors import HostLost
from trainer.job.scoring.scoring_host import meet, scoring_channels, wait_for_hosts
from trainer.wire.flight.addresses import Address


def nothing() -> None:
    pass


def test_hosts_meet_in_a_folder_and_exchange(tmp_path):
    def work(rank):
        def find(own):
            return meet(tmp_path, rank, 3, own, nothing)

        with scoring_channels(rank, Address("127.0.0.1", 0), find, token="t" * 20) as channels:
            sent = [[np.array([10 * rank + to])] for to in range(3)]
            return [int(one[0][0]) for one in channels.steps.all_to_all(sent)], channels.tables.rank

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(work, range(3)))
    assert found == [([0, 10, 20], 0), ([1, 11, 21], 1), ([2, 12, 22], 2)]


def test_a_host_that_does_not_begin_is_named(tmp_path):
    with pytest.raises(HostLost, match="must begin") as caught:
        meet(tmp_path, 0, 2, Address("127.0.0.1", 1), nothing, patience_secs=0.0)
    assert "host 1 of 2" in caught.value.where
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        here = Address("127.0.0.1", listening.getsockname()[1])
        wait_for_hosts([here], patience_secs=0.0)
        with pytest.raises(HostLost, match="must begin") as caught:
            wait_for_hosts([here, Address("127.0.0.1", free_port())], patience_secs=0.0)
    assert "host 1 of 2" in caught.value.where


def test_a_check_ends_the_wait(tmp_path):
    def check():
        raise HostLost("a process that scores must not end before the others")

    with pytest.raises(HostLost, match="must not end"):
        meet(tmp_path, 0, 2, Address("127.0.0.1", 1), check)
