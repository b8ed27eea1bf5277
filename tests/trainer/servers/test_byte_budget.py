"""Laws of the limit of bytes in memory."""

from __future__ import annotations

import threading
from random import Random

import pytest

from tests.support.examples import scaled
from tests.support.processes import PATIENCE_SECS
from trainer.servers.byte_budget import ByteBudget
from transforms.errors import Busy

#: Less than a message waits where a test wants it to give up.
SHORT_SECS = 0.01


def test_messages_together_stay_below_the_limit():
    budget = ByteBudget(10)
    with budget.take(4, SHORT_SECS), budget.take(6, SHORT_SECS):
        assert budget.used_bytes == 10
        with pytest.raises(Busy, match="below their limit"), budget.take(1, SHORT_SECS):
            pass
        with budget.take(0, SHORT_SECS):
            assert budget.used_bytes == 10
    assert budget.used_bytes == 0


def test_a_message_above_the_limit_is_taken_alone():
    budget = ByteBudget(10)
    with budget.take(100, SHORT_SECS), pytest.raises(Busy), budget.take(1, SHORT_SECS):
        pass
    with budget.take(1, SHORT_SECS), pytest.raises(Busy), budget.take(100, SHORT_SECS):
        pass
    assert budget.used_bytes == 0


def test_an_error_gives_the_bytes_back():
    budget = ByteBudget(10)
    with pytest.raises(ZeroDivisionError), budget.take(10, SHORT_SECS):
        raise ZeroDivisionError
    with budget.take(10, SHORT_SECS):
        assert budget.used_bytes == 10


def test_a_message_waits_until_there_is_space():
    budget, taken = ByteBudget(10), threading.Event()

    def wait():
        with budget.take(5, PATIENCE_SECS):
            taken.set()

    with budget.take(7, SHORT_SECS):
        waiting = threading.Thread(target=wait)
        waiting.start()
        assert not taken.wait(timeout=SHORT_SECS)
    waiting.join(PATIENCE_SECS)
    assert taken.is_set()
    assert budget.used_bytes == 0


def test_many_threads_stay_below_the_limit():
    most, budget, above = 100, ByteBudget(100), []

    def use(seed):
        random = Random(seed)
        for _ in range(scaled(200)):
            size = random.choice((1, 10, 60, 100, 150))
            with budget.take(size, PATIENCE_SECS):
                used = budget.used_bytes
                if used > max(most, size) or used < size:
                    above.append((used, size))

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(PATIENCE_SECS)
    assert above == []
    assert budget.used_bytes == 0
