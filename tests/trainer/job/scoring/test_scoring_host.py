"""Hosts that score find each other, or say which one has not begun."""

from __future__ import annotations

import socket
import threading
import time
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


def test_no_host_leaves_before_the_last_one(tmp_path):
    """A host that leaves says no more what has arrived, so that others would take it for lost."""
    last_leaves = threading.Event()

    def work(rank):
        with scoring_channels(rank, Address("127.0.0.1", 0), lambda own: meet(tmp_path, rank, 2, own, nothing)):
            if rank:
                time.sleep(0.3)
                last_leaves.set()
        return last_leaves.is_set()

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, range(2))) == [True, True]


def test_the_loss_of_a_host_that_has_all_it_needs_is_no_error(tmp_path):
    def work(rank):
        here = Address("127.0.0.1", 0)
        with scoring_channels(rank, here, lambda own: meet(tmp_path, rank, 2, own, nothing), patience_secs=0.5):
            if rank:
                raise ZeroDivisionError

    with ThreadPoolExecutor(2) as pool:
        first, other = [pool.submit(work, rank) for rank in range(2)]
        first.result()
        with pytest.raises(ZeroDivisionError):
            other.result()


def test_hosts_that_begin_later_are_waited_for(tmp_path):
    addresses = [Address("127.0.0.1", free_port()) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool, socket.socket() as listening:
        met = pool.submit(meet, tmp_path, 0, 2, addresses[0], nothing)
        found = pool.submit(wait_for_hosts, addresses[1:])
        time.sleep(0.2)
        assert not met.done()
        assert not found.done()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((addresses[1].host, addresses[1].port))
        listening.listen()
        assert meet(tmp_path, 1, 2, addresses[1], nothing) == met.result() == addresses
        found.result()


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
