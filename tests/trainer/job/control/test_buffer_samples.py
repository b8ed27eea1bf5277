from __future__ import annotations

from trainer.job.control.buffer_samples import WantedReaders, add_sample, join_samples
from trainer.scheduling.buffer_control import BufferSample, BufferSettings
from trainer.scheduling.orders import WantRoles

ONE = BufferSample(1.0, 0.5, 100, 2.0, 3, 30, 1.5, 0.1, 50)
TWO = BufferSample(2.0, 0.1, 300, 4.0, 5, 50, 2.5, 0.3, 10)
STARVED = BufferSample(0.0, 0.0, 10_000, 0.1, 10, 1000, 10.0, 0.01, 10_000)


def test_consecutive_samples_of_a_host_add_up():
    assert add_sample(None, ONE) == ONE
    assert add_sample(ONE, TWO) == BufferSample(2.0, 0.1, 400, 6.0, 8, 80, 4.0, 0.3, 10)


def test_the_samples_of_hosts_are_one():
    assert join_samples(9.0, {"h0": ONE}) == BufferSample(9.0, 0.5, 100, 2.0, 3, 30, 1.5, 0.1, 50)
    assert join_samples(9.0, {"h0": ONE, "h1": TWO}) == BufferSample(9.0, 0.1, 400, 3.0, 8, 80, 4.0, 0.2, 60)


def test_the_wanted_readers_are_within_the_limits_of_the_job():
    readers = WantedReaders(BufferSettings())
    limits = WantRoles(2, 1, 5)
    assert readers.wanted(limits) == 1
    readers.update(1.0, limits)
    assert readers.wanted(limits) == 1, "without a sample nothing is known"
    readers.add("h0", STARVED)
    readers.update(2.0, limits)
    assert readers.wanted(limits) == 5
    assert readers.wanted(WantRoles(0, 0, 0)) == 0
    readers.add("h0", STARVED)
    readers.update(3.0, WantRoles(0, 0, 0))
