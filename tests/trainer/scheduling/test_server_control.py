"""The number of parameter servers: what it comes to, how often it changes, and that a change that does not help is taken back."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from trainer.scheduling.server_control import (
    ServerControl,
    ServerLimits,
    ServerSample,
    control_servers,
    step_share,
)
from transforms.errors import InputError


@dataclass
class Training:
    """Steps whose time is that of a dense part, of a network and of servers, which the control makes more or fewer.

    Attributes:
        dense_secs, network_secs: of a step, whatever the number of servers.
        server_secs: the work of a step on all servers together.
        is_hidden: lookups run beside the dense part.
        pause_secs: the time of a change.
        useful: more servers than that share the work no better.
    """

    limits: ServerLimits
    dense_secs: float = 0.1
    network_secs: float = 0.0
    server_secs: float = 0.1
    is_hidden: bool = False
    pause_secs: float = 10.0
    useful: int = 1000
    now_secs: float = 0.0
    paused_secs: float = 0.0
    trained_secs: float = 0.0
    changes: list[tuple[float, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.control = ServerControl(self.limits.least)
        self.used = self.limits.least

    def work_secs(self, servers: int) -> float:
        return self.server_secs / min(servers, self.useful)

    def step_secs(self, servers: int) -> float:
        lookup = self.work_secs(servers) + self.network_secs
        return max(self.dense_secs, lookup) if self.is_hidden else self.dense_secs + lookup

    def run(self, secs: float) -> None:
        until, resumes = self.now_secs + secs, 0.0
        while self.now_secs < until:
            self.now_secs += 1.0
            is_paused = self.now_secs < resumes
            if not is_paused:
                self.used = self.control.servers
            step, trained = self.step_secs(self.used), 0.0 if is_paused else 1.0
            self.paused_secs += 1.0 - trained
            self.trained_secs += trained
            wait = max(step - self.dense_secs, 0.0) / step
            busy = min(self.work_secs(self.used) / step, 1.0)
            sample = ServerSample(
                self.now_secs, 1.0, int(1000 * trained / step), trained, wait * trained, busy * trained, self.used
            )
            before = self.control.servers
            self.control = control_servers(self.control, sample, self.limits)
            if self.control.servers != before:
                self.changes.append((self.now_secs, before, self.control.servers))
                resumes = self.now_secs + self.pause_secs


@pytest.mark.parametrize(
    ("training", "servers"),
    [
        ({"server_secs": 1.0}, 8),  # nearly all of a step
        ({"server_secs": 0.2}, 7),  # a step of 8 servers is 3 % shorter, and one of 6 is 7 % longer than that
        ({"server_secs": 0.002}, 1),  # nearly nothing of it
        ({"server_secs": 0.01, "network_secs": 1.0}, 1),  # the network's time, which more servers do not shorten
        ({"server_secs": 0.09, "is_hidden": True}, 1),  # behind the dense part
        ({"server_secs": 0.3, "is_hidden": True}, 3),  # until three servers keep up with it
    ],
)  # fmt: skip
def test_as_few_servers_as_are_nearly_as_fast_as_all(training: dict[str, float], servers: int) -> None:
    job = Training(ServerLimits(1, 8), **training)
    job.run(3600)
    assert job.control.servers == servers
    assert len(job.changes) <= 3


def test_a_number_that_is_right_never_changes() -> None:
    job = Training(ServerLimits(4, 8), dense_secs=0.1, server_secs=0.01)
    job.run(10_000)
    assert not job.changes


def test_servers_are_taken_away_when_the_work_becomes_less_and_are_back_when_it_grows() -> None:
    job = Training(ServerLimits(1, 8), server_secs=1.0)
    job.run(1000)
    assert job.control.servers == 8
    job.server_secs = 0.001
    job.run(2000)
    assert job.control.servers == 1
    job.server_secs = 1.0
    job.run(3000)
    assert job.control.servers == 8
    assert all(before != after for _, before, after in job.changes)


def test_a_change_that_does_not_help_is_taken_back_and_not_tried_again_for_a_while() -> None:
    """The work of one table that is on one server: the measurements promise what more servers do not give."""
    job = Training(ServerLimits(2, 8), server_secs=0.5, useful=2, pause_secs=5.0)
    job.run(1500)
    assert [(before, after > before) for _, before, after in job.changes] == [(2, True), (job.changes[0][2], False)]
    assert job.control.servers == 2
    job.run(20_000)
    ups = [at for at, before, after in job.changes if after > before]
    assert all(later - at >= 1800 for at, later in pairwise(ups))


def test_fewer_servers_that_turn_out_to_be_too_few_are_not_tried_again_for_a_while() -> None:
    control = ServerControl(4)
    limits = ServerLimits(1, 8, measured_secs=1.0, fewer_after_secs=2.0)

    def sample(at_secs: float, rows: int, servers: int, wait: float = 0.0) -> ServerSample:
        return ServerSample(at_secs, 1.0, rows, 1.0, wait, wait, servers)

    for at_secs in range(1, 5):
        control = control_servers(control, sample(at_secs, 100, 4), limits)
    assert control.servers == 1
    control = control_servers(control, sample(5, 50, 1), limits)  # it trains again: not measured
    control = control_servers(control, sample(6, 50, 1), limits)
    assert (control.servers, control.needed) == (2, 1), "although what was measured says that one is enough"
    for at_secs in range(7, 100):
        control = control_servers(control, sample(at_secs, 100, 2), limits)
    assert control.servers == 2
    for at_secs in range(2000, 2010):
        control = control_servers(control, sample(at_secs, 100, 2), limits)
    assert control.servers == 1, "it is tried again"


@settings(max_examples=scaled(100))
@given(
    server_secs=st.floats(0.001, 10),
    dense_secs=st.floats(0.001, 1),
    network_secs=st.floats(0, 1),
    is_hidden=st.booleans(),
    useful=st.integers(1, 16),
    pause_secs=st.floats(1, 200),
    least=st.integers(1, 8),
    more=st.integers(0, 8),
)
def test_changes_take_a_small_share_of_the_time_and_the_number_stays_in_its_range(
    server_secs: float, dense_secs: float, network_secs: float, is_hidden: bool, useful: int, pause_secs: float, least: int, more: int,
) -> None:  # fmt: skip
    limits = ServerLimits(least, least + more)
    job = Training(limits, dense_secs, network_secs, server_secs, is_hidden, pause_secs, useful)
    job.run(5000)
    assert least <= job.control.servers <= least + more
    assert job.paused_secs <= limits.change_share * job.now_secs + pause_secs + 1
    assert all(later[0] - at[0] >= limits.measured_secs for at, later in pairwise(job.changes))


@settings(max_examples=scaled(200))
@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 64), st.integers(1, 64))
def test_a_step_with_more_servers_is_never_longer(wait: float, busy: float, servers: int, others: int) -> None:
    share = step_share(wait, busy, servers, others)
    assert (share <= 1 + 1e-9) if others >= servers else share >= 1 - 1e-9
    assert step_share(wait, busy, servers, servers) == pytest.approx(1)


@pytest.mark.parametrize("wrong", [{"least": 0}, {"least": 9}, {"slack": 0.0}, {"gain": 1.0}, {"measured_secs": -1.0}])
def test_limits_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match="limits of servers"):
        ServerLimits(**{"least": 1, "most": 8, **wrong})  # type: ignore[arg-type]
