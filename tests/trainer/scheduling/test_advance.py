from __future__ import annotations

from dataclasses import replace

import pytest

from trainer.errors import IllegalEvent
from trainer.scheduling.advance import advance
from trainer.scheduling.attempts import want_roles
from trainer.scheduling.events import (
    CommitFailed,
    DataChanged,
    DataRange,
    Drained,
    Event,
    Failed,
    Heartbeat,
    Joined,
    Left,
    Notice,
    PartitionChanged,
    PartWritten,
    PlanFailed,
    Position,
    Published,
    Recovered,
    Released,
    Role,
    RoleKind,
    StopAsked,
    Tick,
)
from trainer.scheduling.holds import ErrorClass, ErrorDocument
from trainer.scheduling.job import Job, JobSettings, PhaseSettings, resume_job
from trainer.scheduling.orders import (
    AskPosition,
    ChangePhase,
    Commit,
    EndEpoch,
    GiveUp,
    Hold,
    Instruction,
    Leave,
    Order,
    Publish,
    Refuse,
    Rejoin,
    Send,
    StartEpoch,
    TrainingPhase,
    WantRoles,
    WritePart,
)
from trainer.scheduling.transitions import JobState
from transforms.errors import InputError

RESET = ErrorDocument(("ConnectionResetError", "ConnectionError", "OSError"), "reset by peer")
NAN = ErrorDocument(("NonFiniteLoss", "DataError"), "training diverged")
NOT_READY = ErrorDocument(("DataNotReady",), "a memo is not ready")
READER = Role(RoleKind.READER, "r0")


def host(n: int) -> Role:
    return Role(RoleKind.HOST, f"h{n}")


class Scene:
    """A job with hosts that answer when they are asked to."""

    def __init__(self, hosts: int = 1, *, units: int = 100, stops: tuple[int, ...] = (), **settings: object) -> None:
        self.job = Job(replace(JobSettings(hosts=hosts), **settings))  # type: ignore[arg-type]
        self.now = 100.0
        self.told: tuple[Instruction, ...] = ()
        self.data = DataRange("plan", units, stops or (units,))
        self.do(DataChanged(self.now, self.data))
        self.join(READER)
        self.join(*(host(n) for n in range(hosts)))

    def do(self, event: Event) -> tuple[Instruction, ...]:
        self.job, self.told = advance(self.job, event)
        return self.told

    def join(self, *roles: Role, incarnation: int | None = None) -> None:
        for role in roles:
            number = incarnation or self.job.incarnations.get(role, 0) + 1
            self.do(Joined(self.now, role, number, "", 1))

    def pass_secs(self, secs: float, *beating: Role) -> list[Instruction]:
        """Let time pass with the heartbeats of roles, by default of all members."""
        told: list[Instruction] = []
        for _ in range(int(secs)):
            self.now += 1
            for role in beating or tuple(self.job.members):
                if role in self.job.members:
                    self.do(Heartbeat(self.now, role, self.job.members[role].incarnation))
            told += self.do(Tick(self.now))
        return told

    def number(self, role: Role) -> int:
        return self.job.members[role].incarnation if role in self.job.members else 1

    def drain(self, *roles: Role) -> None:
        for role in roles or tuple(host(int(name[1:])) for name in self.job.hosts):
            self.do(Drained(self.now, role, self.number(role), self.job.attempt, self.job.stop_unit))

    def place(self, *units: int) -> None:
        for n, unit in enumerate(units):
            self.do(Position(self.now, host(n), self.number(host(n)), self.job.attempt, unit))

    def write(self) -> None:
        pending = self.job.pending
        assert pending is not None
        for name in pending.missing:
            role = Role(RoleKind.HOST, name)
            self.do(PartWritten(self.now, role, self.number(role), pending.commit.attempt, f"part of {name}"))

    def publish(self) -> None:
        pending = self.job.pending
        assert pending is not None
        assert pending.is_publishing
        self.do(Published(self.now, pending.commit.attempt))

    def commit(self) -> None:
        self.drain()
        self.write()
        self.publish()

    def orders(self, role: Role) -> list[Order]:
        return [one.order for one in self.told if isinstance(one, Send) and one.role == role]

    @property
    def state(self) -> JobState:
        return self.job.state


def test_a_job_from_start_to_done() -> None:
    scene = Scene(2, stops=(40, 100))
    assert want_roles(scene.job) == WantRoles(2, 1, 8)
    assert scene.state is JobState.TRAINING
    (start,) = scene.orders(host(0))
    assert start == StartEpoch(1, 0, 0, 40, ("h0", "h1"), None, Commit(), "plan")
    scene.drain(host(0))
    assert scene.state is JobState.DRAINING
    scene.drain(host(1))
    assert scene.state is JobState.COMMITTING
    assert scene.orders(host(0)) == [WritePart(1, 0, 40)]
    scene.write()
    (publish,) = scene.told
    assert publish == Publish(1, Commit(1, 1, 40), ("h0", "h1"), {"h0": "part of h0", "h1": "part of h1"})
    scene.publish()
    assert scene.orders(host(1)) == [StartEpoch(2, 1, 40, 100, ("h0", "h1"), 1, Commit(1, 1, 40), "plan")]
    scene.commit()
    assert scene.state is JobState.DONE
    assert scene.told[0] == WantRoles(0, 0, 0)
    assert scene.orders(host(0)) == [Leave("the job is done", is_over=True)]


def test_an_attempt_begins_when_enough_roles_are_there() -> None:
    scene = Scene(2)
    job = Job(JobSettings(hosts=2))
    for event in (Joined(0, host(0), 1, "", 1), Joined(0, host(1), 1, "", 1), DataChanged(0, scene.data)):
        job, _ = advance(job, event)
        assert job.state is JobState.STARTING
    job, _ = advance(job, Joined(0, READER, 1, "", 1))
    assert job.state is JobState.TRAINING


@pytest.mark.parametrize(("release", "protocol"), [("old", 1), ("", 2)])
def test_a_role_of_another_release_is_refused(release: str, protocol: int) -> None:
    scene = Scene()
    before = scene.job
    (told,) = scene.do(Joined(scene.now, host(9), 1, release, protocol))
    assert isinstance(told, Send)
    assert isinstance(told.order, Refuse)
    assert repr(release) in told.order.reason
    assert scene.job == before


def test_orders_are_repeated_with_every_heartbeat() -> None:
    scene = Scene()
    scene.do(Heartbeat(scene.now, host(0), 1))
    assert [type(order) for order in scene.orders(host(0))] == [StartEpoch]
    scene.do(Notice(scene.now, 30.0, host(0)))
    scene.do(Heartbeat(scene.now, host(0), 1))
    assert [type(order) for order in scene.orders(host(0))] == [StartEpoch, AskPosition]
    scene.place(8)
    scene.do(Heartbeat(scene.now, host(0), 1))
    assert scene.orders(host(0))[1:] == [EndEpoch(1, 8, 28.0)]


def test_a_silent_host_is_lost_and_the_attempt_begins_again() -> None:
    scene = Scene(2, stops=(40, 100))
    scene.commit()
    scene.pass_secs(29, READER, host(0))
    assert scene.state is JobState.TRAINING
    told = scene.pass_secs(2, READER, host(0))
    assert scene.state in (JobState.RESTARTING, JobState.STARTING)
    assert GiveUp(2) in [one.order for one in told if isinstance(one, Send)]
    scene.pass_secs(3)
    assert scene.state is JobState.STARTING, "a host is missing"
    scene.join(host(1))
    assert scene.orders(host(0)) == [StartEpoch(3, 1, 40, 100, ("h0", "h1"), None, Commit(1, 1, 40), "plan")]


def test_a_restarted_process_ends_the_attempt_of_its_predecessor() -> None:
    scene = Scene()
    scene.join(host(0))
    assert scene.state is JobState.RESTARTING
    scene.pass_secs(2)
    assert (scene.state, scene.job.attempt) == (JobState.TRAINING, 2)


def test_processes_that_were_replaced_or_lost_are_fenced() -> None:
    scene = Scene()
    scene.join(host(0), incarnation=5)
    before = scene.job
    scene.do(Joined(scene.now, host(0), 1, "", 1))
    assert scene.orders(host(0)) == [Refuse("another process is host h0")]
    scene.do(Drained(scene.now, host(0), 1, 1, 100))
    scene.do(Heartbeat(scene.now, host(0), 1))
    assert isinstance(scene.orders(host(0))[0], Refuse)
    assert scene.job == before
    scene.do(Left(scene.now, host(0), 5))
    scene.do(Heartbeat(scene.now, host(0), 5))
    assert scene.orders(host(0)) == [Rejoin(6)]
    scene.do(Joined(scene.now, host(0), 5, "", 1))
    assert scene.orders(host(0)) == [Rejoin(6)], "a repeated message of the lost process brings no member back"
    assert host(0) not in scene.job.members


def test_messages_of_an_earlier_attempt_change_nothing() -> None:
    scene = Scene(2)
    scene.do(Failed(scene.now, host(0), 1, 1, RESET))
    scene.pass_secs(2)
    assert scene.job.attempt == 2
    before = scene.job
    for event in (
        Drained(scene.now, host(0), 1, 1, 100),
        Position(scene.now, host(0), 1, 1, 5),
        PartWritten(scene.now, host(0), 1, 1, "x"),
        Failed(scene.now, host(0), 1, 1, NAN),
        CommitFailed(scene.now, 1, NAN),
        Published(scene.now, 1),
    ):
        assert scene.do(event) == ()
    assert scene.job == replace(before, members=scene.job.members)


def test_a_lost_reader_costs_no_attempt() -> None:
    scene = Scene()
    scene.pass_secs(40, host(0))
    assert READER not in scene.job.members
    assert (scene.state, scene.job.attempt) == (JobState.TRAINING, 1)


def test_failures_of_readers_are_counted_until_the_next_commit() -> None:
    scene = Scene(stops=(40, 100), most_reader_failures=2)
    for _ in range(2):
        scene.do(Failed(scene.now, READER, 1, 1, RESET))
    assert scene.state is JobState.TRAINING
    scene.commit()
    for _ in range(2):
        scene.do(Failed(scene.now, READER, 1, 2, RESET))
    assert scene.state is JobState.TRAINING
    scene.do(Failed(scene.now, READER, 1, 2, RESET))
    assert scene.state is JobState.HELD


def test_restarts_wait_longer_each_time_and_become_a_hold() -> None:
    scene = Scene(most_restarts=3)
    waits = []
    for _ in range(3):
        scene.do(Failed(scene.now, host(0), 1, scene.job.attempt, RESET))
        waits.append(scene.job.resume_secs - scene.job.now_secs)
        scene.pass_secs(waits[-1] + 1)
        assert scene.state is JobState.TRAINING
    assert waits == [1, 2, 4]
    scene.do(Failed(scene.now, host(0), 1, scene.job.attempt, RESET))
    assert scene.state is JobState.HELD
    hold = scene.told[0]
    assert isinstance(hold, Hold)
    assert hold.error_class is ErrorClass.TRANSIENT
    assert "3 restarts" in hold.reason
    assert "reset by peer" in hold.reason


def test_a_permanent_error_holds_until_a_person_releases() -> None:
    scene = Scene()
    scene.do(Failed(scene.now, host(0), 1, 1, NAN))
    assert scene.state is JobState.HELD
    assert scene.told[:2] == (
        Hold(ErrorClass.PERMANENT, "NonFiniteLoss: training diverged", "host h0"),
        WantRoles(0, 0, 0),
    )
    assert scene.orders(host(0)) == scene.orders(READER) == [Leave("the job is held")]
    scene.do(DataChanged(scene.now, scene.data))
    scene.pass_secs(1000)
    assert scene.state is JobState.HELD
    scene.do(Released(scene.now))
    assert scene.state is JobState.STARTING
    assert scene.told == (WantRoles(1, 1, 8),)
    scene.join(READER, host(0))
    assert (scene.state, scene.job.attempt) == (JobState.TRAINING, 2)


def test_only_a_held_job_can_be_released() -> None:
    scene = Scene()
    with pytest.raises(IllegalEvent) as caught:
        scene.do(Released(scene.now))
    assert "released" not in caught.value.allowed.split(", ")


def test_data_that_is_not_ready_lifts_its_hold() -> None:
    scene = Scene()
    scene.do(Failed(scene.now, READER, 1, 1, NOT_READY))
    assert scene.state is JobState.HELD
    scene.do(DataChanged(scene.now, scene.data))
    assert scene.state is JobState.STARTING


@pytest.mark.parametrize(
    ("error", "state"), [(NOT_READY, JobState.HELD), (NAN, JobState.HELD), (RESET, JobState.STARTING)]
)
def test_a_plan_that_cannot_be_made_holds_a_job_without_data(error: ErrorDocument, state: JobState) -> None:
    job, _ = advance(Job(), PlanFailed(0.0, error))
    assert job.state is state
    job, _ = advance(job, DataChanged(1.0, DataRange("plan", 5, (5,))))
    assert job.state is (JobState.HELD if error is NAN else JobState.STARTING)


def test_a_plan_that_cannot_be_made_does_not_stop_training() -> None:
    scene = Scene()
    scene.do(PlanFailed(scene.now, NOT_READY))
    assert scene.state is JobState.TRAINING


def test_a_job_that_was_stopped_is_resumed_with_other_hosts() -> None:
    scene = Scene(2, stops=(40, 100))
    scene.commit()
    scene.do(StopAsked(scene.now, now=True))
    scene.job = resume_job(scene.job, JobSettings(hosts=1), scene.job.commit)
    scene.do(DataChanged(scene.now, scene.data))
    scene.join(READER, host(0))
    assert scene.orders(host(0)) == [StartEpoch(3, 1, 40, 100, ("h0",), None, Commit(1, 1, 40), "plan")]
    assert scene.job.incarnations[host(0)] == 2


def test_the_root_cause_may_come_after_its_consequences() -> None:
    """A host is out of memory; its peer reports the broken connection first."""
    scene = Scene(2)
    scene.do(Failed(scene.now, host(1), 1, 1, RESET))
    assert scene.state is JobState.RESTARTING
    scene.do(Failed(scene.now, host(0), 1, 1, NAN))
    assert scene.state is JobState.HELD


def test_an_epoch_ends_by_wall_time_at_a_unit_that_no_host_has_passed() -> None:
    scene = Scene(2, initial=PhaseSettings(epoch_secs=10.0))
    scene.pass_secs(10)
    assert scene.state is JobState.ENDING
    scene.place(5, 8)
    assert scene.state is JobState.DRAINING
    assert scene.job.stop_unit == 8
    assert scene.orders(host(0))[1:] == scene.orders(host(1))[1:] == [EndEpoch(1, 8, None)]
    scene.commit()
    assert scene.job.commit == Commit(1, 1, 8)


def test_an_end_is_after_the_last_unit_that_any_host_has_begun() -> None:
    scene = Scene(3, initial=PhaseSettings(epoch_secs=10.0))
    scene.pass_secs(10)
    scene.place(1, 4, 3)
    assert scene.job.stop_unit == 4


def test_a_host_that_reached_the_natural_end_fixes_it() -> None:
    scene = Scene(2, stops=(40, 100))
    scene.do(Notice(scene.now, 30.0, host(0)))
    scene.drain(host(1))
    scene.do(Position(scene.now, host(0), 1, 1, 31))
    assert scene.job.stop_unit == 40
    scene.drain(host(0))
    assert scene.state is JobState.COMMITTING


def test_a_notice_commits_early_and_the_job_waits_for_the_role() -> None:
    scene = Scene(2)
    scene.do(Notice(scene.now, 30.0, host(1)))
    scene.place(3, 4)
    scene.commit()
    assert scene.state is JobState.AWAY
    assert scene.orders(host(1)) == [Leave("preemption notice")]
    assert scene.orders(host(0)) == []
    scene.do(Left(scene.now, host(1), 1))
    scene.pass_secs(500)
    assert scene.state is JobState.AWAY
    scene.join(host(1))
    assert scene.state is JobState.TRAINING
    assert scene.job.first_unit == 4
    assert scene.job.restarts == 0, "a preemption is no failure"


def test_with_goes_on_the_job_continues_with_the_other_hosts_and_grows_again() -> None:
    scene = Scene(2, goes_on=True, stops=(40, 60, 100))
    scene.do(Notice(scene.now, 30.0, host(1)))
    scene.place(3, 4)
    scene.commit()
    assert scene.orders(host(0)) == [StartEpoch(2, 1, 4, 40, ("h0",), None, Commit(1, 1, 4), "plan")]
    scene.do(Left(scene.now, host(1), 1))
    scene.join(host(1))
    assert scene.job.hosts == ("h0",)
    scene.commit()
    assert scene.orders(host(1)) == [StartEpoch(3, 2, 40, 60, ("h0", "h1"), None, Commit(2, 2, 40), "plan")]


def test_an_epoch_that_cannot_commit_in_time_is_given_up() -> None:
    scene = Scene(2, leave_margin_secs=2.0)
    scene.do(Notice(scene.now, 10.0, host(1)))
    scene.place(3, 4)
    scene.pass_secs(7)
    assert scene.state is JobState.DRAINING
    scene.pass_secs(1, host(0))
    assert scene.state is JobState.AWAY
    assert scene.orders(host(1)) == [Leave("preemption notice")]
    assert scene.orders(host(0)) == [GiveUp(1)]
    assert scene.job.commit == Commit()


def test_a_commit_that_is_being_published_needs_no_host() -> None:
    scene = Scene()
    scene.do(Notice(scene.now, 10.0))
    scene.place(3)
    scene.drain()
    scene.write()
    told = scene.pass_secs(9)
    assert Send(host(0), 1, Leave("preemption notice")) in told
    scene.do(Left(scene.now, host(0), 1))
    assert scene.state is JobState.COMMITTING
    scene.publish()
    assert (scene.state, scene.job.commit) == (JobState.AWAY, Commit(1, 1, 3))


def test_a_host_that_is_replaced_while_its_commit_is_published_restores_it() -> None:
    scene = Scene(2, stops=(40, 100))
    scene.drain()
    scene.write()
    scene.join(host(1))
    assert scene.state is JobState.COMMITTING
    scene.publish()
    for role in (host(0), host(1)):
        assert scene.orders(role) == [StartEpoch(2, 1, 40, 100, ("h0", "h1"), None, Commit(1, 1, 40), "plan")]


def test_a_host_that_is_replaced_before_its_part_is_written_ends_the_attempt() -> None:
    scene = Scene(2, stops=(40, 100))
    scene.drain()
    scene.do(PartWritten(scene.now, host(0), 1, 1, "part of h0"))
    scene.join(host(1))
    assert scene.state is JobState.RESTARTING
    assert scene.job.pending is None


def test_an_epoch_that_ended_early_ends_at_the_same_unit_when_it_is_trained_again() -> None:
    scene = Scene(2, initial=PhaseSettings(epoch_secs=10.0))
    scene.pass_secs(10)
    scene.place(5, 8)
    scene.do(Failed(scene.now, host(0), 1, 1, RESET))
    scene.pass_secs(2)
    assert (scene.state, scene.job.first_unit, scene.job.stop_unit) == (JobState.TRAINING, 0, 8)
    scene.commit()
    assert scene.job.stop_unit == 100


def test_a_host_at_another_unit_is_not_drained() -> None:
    scene = Scene(2, stops=(40, 100))
    scene.do(Drained(scene.now, host(0), 1, 1, 39))
    assert scene.state is JobState.TRAINING
    scene.do(Notice(scene.now, 30.0))
    scene.place(4, 8)
    scene.do(Drained(scene.now, host(0), 1, 1, 40))
    assert scene.job.drained == frozenset()


def test_a_notice_before_any_unit_is_begun_needs_no_commit() -> None:
    scene = Scene(2)
    scene.do(Notice(scene.now, 30.0))
    scene.place(0, 0)
    assert scene.state is JobState.AWAY
    assert scene.job.pending is None
    assert scene.orders(READER) == [Leave("preemption notice")]


@pytest.mark.parametrize(("stops", "state"), [(False, JobState.AWAY), (True, JobState.STOPPED)])
def test_an_overlapping_epoch_without_units_needs_no_commit(stops: bool, state: JobState) -> None:
    scene = Scene(stops=(40, 100), overlap=True)
    scene.drain()
    scene.do(StopAsked(scene.now) if stops else Notice(scene.now, 30.0))
    scene.place(40)
    scene.write()
    scene.publish()
    assert scene.state is JobState.DRAINING
    scene.drain()
    assert (scene.state, scene.job.commit, scene.job.pending) == (state, Commit(1, 1, 40), None)


def test_a_second_notice_may_leave_enough_hosts() -> None:
    """The pending commit of an attempt that was given up needs a host that leaves too: it is dropped."""
    scene = Scene(2, goes_on=True)
    scene.join(host(2))
    scene.do(Notice(scene.now, 5.0, host(0)))
    scene.place(3, 4)
    scene.drain()
    scene.do(PartWritten(scene.now, host(0), 1, 1, "part of h0"))
    scene.pass_secs(4)
    assert scene.state is JobState.AWAY
    assert scene.job.pending is not None
    scene.do(Notice(scene.now, 30.0, host(1)))
    assert (scene.state, scene.job.hosts, scene.job.pending) == (JobState.TRAINING, ("h2",), None)
    assert (scene.job.first_unit, scene.job.stop_unit) == (0, 4)


def test_the_whole_job_waits_for_all_hosts() -> None:
    scene = Scene(2, goes_on=True)
    scene.do(Notice(scene.now, 30.0))
    scene.place(0, 0)
    scene.join(host(0), READER)
    assert scene.state is JobState.AWAY
    scene.join(host(1))
    assert scene.state is JobState.TRAINING


def test_a_notice_for_a_reader_lets_the_attempt_go_on() -> None:
    scene = Scene()
    scene.do(Notice(scene.now, 30.0, READER))
    assert scene.orders(READER) == [Leave("preemption notice")]
    assert (scene.state, scene.job.attempt) == (JobState.TRAINING, 1)
    assert scene.job.present(RoleKind.READER) == ()


@pytest.mark.parametrize("own", [True, False])
def test_a_failed_commit_is_trained_again(own: bool) -> None:
    scene = Scene(stops=(40, 100))
    scene.drain()
    if own:
        scene.do(CommitFailed(scene.now, 1, RESET, host(0), 1))
    else:
        scene.write()
        scene.do(CommitFailed(scene.now, 1, RESET))
    assert scene.state is JobState.RESTARTING
    scene.pass_secs(2)
    assert (scene.job.first_unit, scene.job.stop_unit, scene.job.attempt) == (0, 40, 2)
    scene.commit()
    assert scene.job.commit == Commit(1, 2, 40)


def test_the_next_epoch_overlaps_with_the_commit() -> None:
    scene = Scene(stops=(40, 80, 100), overlap=True)
    scene.drain()
    assert scene.orders(host(0)) == [WritePart(1, 0, 40), StartEpoch(2, 1, 40, 80, ("h0",), 1, Commit(), "plan")]
    scene.drain()
    assert scene.state is JobState.COMMITTING, "the first commit is not published yet"
    scene.write()
    scene.publish()
    assert scene.job.commit == Commit(1, 1, 40)
    assert scene.state is JobState.TRAINING
    assert scene.orders(host(0))[0] == WritePart(2, 1, 80)
    scene.write()
    scene.publish()
    assert scene.job.commit == Commit(2, 2, 80)


def test_a_commit_is_kept_if_a_later_attempt_fails() -> None:
    scene = Scene(stops=(40, 80, 100), overlap=True)
    scene.drain()
    scene.write()
    scene.do(Failed(scene.now, host(0), 1, 2, RESET))
    scene.pass_secs(2)
    assert scene.state is JobState.STARTING, "the outcome of the publication is not known"
    scene.publish()
    assert scene.state is JobState.TRAINING
    assert (scene.job.epoch, scene.job.first_unit, scene.job.stop_unit) == (1, 40, 80)


def test_a_commit_that_fails_under_the_next_epoch_gives_both_up() -> None:
    scene = Scene(stops=(40, 80, 100), overlap=True)
    scene.drain()
    assert (scene.state, scene.job.attempt) == (JobState.TRAINING, 2)
    scene.do(CommitFailed(scene.now, 1, RESET, host(0), 1))
    scene.pass_secs(2)
    assert (scene.job.epoch, scene.job.first_unit, scene.job.stop_unit, scene.job.attempt) == (0, 0, 40, 3)


def test_a_lost_part_drops_both_epochs() -> None:
    scene = Scene(stops=(40, 80, 100), overlap=True)
    scene.drain()
    scene.join(host(0))
    scene.pass_secs(2)
    assert (scene.job.epoch, scene.job.first_unit, scene.job.stop_unit, scene.job.attempt) == (0, 0, 40, 3)


def test_a_recovered_controller_publishes_again_and_loses_no_role() -> None:
    scene = Scene()
    scene.drain()
    scene.write()
    scene.now += 1000
    told = scene.do(Recovered(scene.now))
    assert told[0] == WantRoles(1, 1, 8)
    assert [type(one) for one in told].count(Publish) == 1
    scene.do(Tick(scene.now))
    assert set(scene.job.members) == {READER, host(0)}


def test_a_recovered_controller_gives_every_role_its_whole_time() -> None:
    scene = Scene()
    for _ in range(27):
        scene.now += 1
        scene.do(Tick(scene.now))
    scene.do(Recovered(scene.now))
    scene.now += 5
    scene.do(Tick(scene.now))
    assert set(scene.job.members) == {READER, host(0)}


@pytest.mark.parametrize("secs", [1e6, -1e6])
def test_a_clock_that_jumps_loses_no_role_and_ends_no_epoch(secs: float) -> None:
    scene = Scene(initial=PhaseSettings(epoch_secs=60.0))
    scene.pass_secs(5)
    scene.now += secs
    scene.do(Tick(scene.now))
    scene.pass_secs(20)
    assert (scene.state, scene.job.attempt, len(scene.job.members)) == (JobState.TRAINING, 1, 2)
    scene.pass_secs(40)
    assert scene.state is JobState.ENDING


def test_a_job_that_is_not_finite_waits_for_data_and_changes_its_phase() -> None:
    phase = PhaseSettings(least_readers=1, most_readers=2)
    scene = Scene(is_finite=False, caught_up=phase, behind_units=50)
    assert scene.job.phase is TrainingPhase.INITIAL
    scene.commit()
    assert scene.state is JobState.WAITING_FOR_DATA
    assert scene.told[:2] == (ChangePhase(TrainingPhase.CAUGHT_UP), WantRoles(1, 1, 2))
    scene.do(DataChanged(scene.now, DataRange("plan 2", 120, (120,))))
    assert scene.orders(host(0)) == [StartEpoch(2, 1, 100, 120, ("h0",), 1, Commit(1, 1, 100), "plan 2")]
    scene.do(DataChanged(scene.now, DataRange("plan 3", 200, (200,))))
    assert scene.job.stop_unit == 120, "an attempt keeps its end"
    scene.commit()
    assert scene.job.stop_unit == 200
    assert scene.job.phase is TrainingPhase.INITIAL


@pytest.mark.parametrize("is_finite", [True, False])
def test_a_job_waits_for_its_next_pass_and_keeps_its_hosts(is_finite: bool) -> None:
    scene = Scene(is_finite=is_finite, caught_up=PhaseSettings(least_readers=1, most_readers=2), behind_units=50)
    scene.do(DataChanged(scene.now, DataRange("pass 1", 100, (100,), is_last=False)))
    scene.commit()
    assert (scene.state, scene.job.phase) == (JobState.WAITING_FOR_DATA, TrainingPhase.INITIAL)
    scene.do(DataChanged(scene.now, DataRange("pass 2", 120, (120,))))
    assert scene.orders(host(0)) == [StartEpoch(2, 1, 100, 120, ("h0",), 1, Commit(1, 1, 100), "pass 2")]
    scene.commit()
    assert scene.state is (JobState.DONE if is_finite else JobState.WAITING_FOR_DATA)


def test_a_job_ends_when_no_pass_is_left() -> None:
    scene = Scene()
    scene.do(DataChanged(scene.now, DataRange("pass 1", 100, (100,), is_last=False)))
    scene.commit()
    assert scene.state is JobState.WAITING_FOR_DATA
    scene.do(DataChanged(scene.now, DataRange("pass 1", 100, (100,))))
    assert scene.state is JobState.DONE


def test_a_phase_has_its_own_hosts() -> None:
    scene = Scene(hosts=2, is_finite=False, caught_up=PhaseSettings(hosts=1), behind_units=50)
    scene.commit()
    assert scene.told[:2] == (ChangePhase(TrainingPhase.CAUGHT_UP), WantRoles(1, 1, 8))
    assert isinstance(scene.orders(host(1))[0], Leave)
    scene.do(Left(scene.now, host(1), 1))
    scene.do(DataChanged(scene.now, DataRange("plan 2", 120, (120,))))
    (start,) = scene.orders(host(0))
    assert isinstance(start, StartEpoch)
    assert (start.hosts, start.continues) == (("h0",), None), "rows of tables are spread over other hosts"
    scene.do(DataChanged(scene.now, DataRange("plan 3", 200, (200,))))
    scene.commit()
    assert scene.state is JobState.STARTING, "the second host is not back yet"
    assert WantRoles(2, 1, 8) in scene.told
    scene.join(host(1))
    assert scene.job.hosts == ("h0", "h1")


def test_a_host_that_is_lost_while_the_job_waits_is_restored() -> None:
    scene = Scene(is_finite=False)
    scene.commit()
    scene.join(host(0))
    scene.do(DataChanged(scene.now, DataRange("plan 2", 120, (120,))))
    (start,) = scene.orders(host(0))
    assert isinstance(start, StartEpoch)
    assert start.continues is None


@pytest.mark.parametrize("overlap", [False, True])
def test_another_partition_begins_with_the_next_attempt_which_restores_the_commit(overlap: bool) -> None:
    scene = Scene(overlap=overlap)
    scene.do(DataChanged(scene.now, DataRange("plan", 200, (100, 200))))
    scene.do(PartitionChanged(scene.now, "by rows"))
    assert (scene.job.partition, scene.job.next_partition) == ("", "by rows"), "an attempt keeps its plan"
    scene.drain()
    assert scene.job.attempt == 1, "the commit comes first: its parts are of the plan before"
    scene.write()
    (publish,) = (one for one in scene.told if isinstance(one, Publish))
    assert publish.partition == ""
    scene.do(Published(scene.now, 1))
    assert scene.orders(host(0)) == [
        StartEpoch(2, 1, 100, 200, ("h0",), None, Commit(1, 1, 100), "plan", (), "by rows")
    ]
    scene.do(PartitionChanged(scene.now, "by rows"))
    assert scene.job.next_partition is None, "a repeated message changes nothing"


def test_a_partition_that_is_taken_back_interrupts_nothing() -> None:
    scene = Scene(overlap=True)
    scene.do(DataChanged(scene.now, DataRange("plan", 200, (100, 200))))
    scene.do(PartitionChanged(scene.now, "by rows"))
    scene.do(PartitionChanged(scene.now, ""))
    scene.drain()
    assert (scene.job.attempt, scene.job.continues) == (2, 1)


def test_an_attempt_that_is_given_up_is_repeated_by_the_new_partition() -> None:
    scene = Scene()
    scene.do(PartitionChanged(scene.now, "by rows"))
    scene.do(Left(scene.now, host(0), 1))
    scene.pass_secs(2)
    scene.join(host(0))
    (start,) = scene.orders(host(0))
    assert isinstance(start, StartEpoch)
    assert (start.attempt, start.partition, start.continues) == (2, "by rows", None)


def test_a_range_never_shrinks() -> None:
    scene = Scene()
    scene.do(DataChanged(scene.now, DataRange("older", 50, (50,))))
    assert scene.job.next_data is None
    with pytest.raises(InputError, match="ascend"):
        DataRange("bad", 100, (50, 40, 100))
    with pytest.raises(InputError, match="ascend"):
        DataRange("bad", 100, (50,))


def test_a_stop_commits_first() -> None:
    scene = Scene()
    scene.do(StopAsked(scene.now))
    scene.place(7)
    scene.commit()
    assert (scene.state, scene.job.commit) == (JobState.STOPPED, Commit(1, 1, 7))
    assert scene.orders(host(0)) == [Leave("the job was stopped", is_over=True)]


def test_a_stop_that_fails_still_stops() -> None:
    scene = Scene()
    scene.do(StopAsked(scene.now))
    scene.do(Failed(scene.now, host(0), 1, 1, RESET))
    assert scene.state is JobState.STOPPED


@pytest.mark.parametrize("begun", [True, False])
def test_a_stop_now_gives_the_epoch_up(begun: bool) -> None:
    scene = Scene()
    if begun:
        scene.do(StopAsked(scene.now))
        scene.place(7)
    scene.do(StopAsked(scene.now, now=True))
    assert (scene.state, scene.job.commit) == (JobState.STOPPED, Commit())


@pytest.mark.parametrize(
    "settings",
    [
        {"hosts": 0},
        {"least_hosts": 2},
        {"hosts": 3, "least_hosts": 2, "caught_up": PhaseSettings(hosts=1)},
        {"lost_secs": 5.0},
        {"most_step_secs": 0.0},
        {"most_restarts": -1},
        {"leave_margin_secs": float("inf")},
    ],
)
def test_settings_are_checked(settings: dict[str, float]) -> None:
    with pytest.raises(InputError):
        JobSettings(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("settings", [{"epoch_secs": 0.0}, {"least_readers": 9}, {"least_readers": -1}, {"hosts": -1}])
def test_settings_of_phases_are_checked(settings: dict[str, float]) -> None:
    with pytest.raises(InputError):
        PhaseSettings(**settings)  # type: ignore[arg-type]
