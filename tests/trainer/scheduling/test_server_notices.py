"""Parameter servers as roles of a job: their notices end the epoch early, and the job waits for them or goes on with the others."""

from __future__ import annotations

import pytest

from tests.trainer.scheduling.test_advance import NAN, host
from tests.trainer.scheduling.watched_scene import Watched
from trainer.scheduling.current_orders import orders_for
from trainer.scheduling.events import (
    Failed,
    Heartbeat,
    Left,
    Notice,
    PartWritten,
    Released,
    Role,
    RoleKind,
    ServersChanged,
    StopAsked,
    Tick,
)
from trainer.scheduling.holds import ErrorDocument
from trainer.scheduling.job import JobSettings, resume_job
from trainer.scheduling.orders import Commit, GiveUp, Leave, Rejoin, StartEpoch, WritePart
from trainer.scheduling.transitions import JobState
from transforms.errors import InputError

LOST = ErrorDocument(("ServerLost", "HeadraceError"), "a server must answer")


def server(n: int) -> Role:
    return Role(RoleKind.SERVER, f"s{n}")


class Served(Watched):
    """A job whose tables are on servers, which have joined it."""

    kind = RoleKind.SERVER

    def fail_host(self, error: ErrorDocument, n: int = 0) -> None:
        self.do(Failed(self.now, host(n), self.number(host(n)), self.job.attempt, error))


def test_an_epoch_ends_early_and_the_job_waits_for_the_server() -> None:
    scene = Served()
    scene.notice(1)
    assert scene.state is JobState.ENDING
    assert scene.orders_of(1) == []
    scene.place(4)
    scene.drain()
    assert scene.state is JobState.COMMITTING
    assert scene.orders_of(1) == [], "the rows of the commit are being read"
    scene.write()
    scene.publish()
    assert scene.state is JobState.AWAY
    assert scene.orders_of(1) == [Leave("preemption notice")]
    assert scene.orders_of(0) == []
    assert orders_for(scene.job, host(0), 1) == (GiveUp(1),), "the host keeps nothing"
    scene.leave(1)
    scene.pass_secs(500, host(0), Role(RoleKind.READER, "r0"), server(0))
    assert scene.state is JobState.AWAY, "without an end"
    scene.join(server(1))
    assert scene.state is JobState.TRAINING
    start = next(one for one in orders_for(scene.job, host(0), 1) if isinstance(one, StartEpoch))
    assert (start.continues, start.commit, start.unused_servers) == (None, Commit(1, 1, 4), ())


def test_the_job_goes_on_with_the_least_number_of_servers_and_takes_the_other_back() -> None:
    scene = Served(3, least_servers=2, overlap=True, stops=(40, 80, 100))
    scene.notice(1)
    scene.commit_early(4)
    assert scene.state is JobState.TRAINING
    (start,) = (one for one in orders_for(scene.job, host(0), 1) if isinstance(one, StartEpoch))
    assert (start.continues, start.unused_servers) == (None, ("s1",))
    scene.leave(1)
    assert scene.state is JobState.TRAINING
    scene.join(server(1))
    scene.drain()
    assert scene.state is JobState.COMMITTING, "the next epoch has other servers, so it waits for the commit"
    scene.write()
    scene.publish()
    (start,) = (one for one in orders_for(scene.job, host(0), 1) if isinstance(one, StartEpoch))
    assert (start.continues, start.unused_servers) == (None, ())
    scene.drain()
    assert scene.state is JobState.TRAINING, "epochs overlap again"


@pytest.mark.parametrize("lost", [False, True])
def test_fewer_servers_than_the_least_are_waited_for(lost: bool) -> None:
    scene = Served(3, least_servers=2)
    if lost:  # without a notice: it has not joined again
        scene.leave(2)
        scene.notice(1)
    else:
        scene.notice(1, 2)
    scene.commit_early(4)
    assert scene.state is JobState.AWAY
    scene.join(server(2))
    assert scene.state is JobState.TRAINING
    assert scene.job.unused_servers == ("s1",)


def test_both_servers_at_once_are_one_early_end() -> None:
    scene = Served()
    scene.notice(0, 1)
    scene.commit_early(4)
    assert scene.state is JobState.AWAY
    assert scene.orders_of(0) == scene.orders_of(1) == [Leave("preemption notice")]
    scene.join(server(0))
    assert scene.state is JobState.AWAY
    scene.join(server(1))
    assert scene.state is JobState.TRAINING
    assert scene.job.commit == Commit(1, 1, 4)


def test_a_notice_while_a_commit_is_written_waits_for_both_commits() -> None:
    scene = Served(overlap=True, stops=(40, 100))
    scene.drain()
    assert (scene.state, scene.job.attempt) == (JobState.TRAINING, 2)
    scene.notice(1)
    scene.place(44)
    scene.drain()
    assert scene.state is JobState.COMMITTING
    scene.write()
    assert scene.orders_of(1) == []
    scene.publish()
    assert scene.job.pending is not None
    assert scene.job.pending.commit == Commit(2, 2, 44)
    scene.write()
    assert scene.orders_of(1) == [], "its notice is for the epoch, too"
    scene.publish()
    assert scene.state is JobState.AWAY
    assert scene.orders_of(1) == [Leave("preemption notice")]


def test_a_server_that_leaves_while_an_earlier_commit_is_read_stays_until_it_is_read() -> None:
    scene = Served(hosts=2, overlap=True, stops=(40, 100))
    scene.drain()
    scene.do(PartWritten(scene.now, host(1), scene.number(host(1)), 1, "part of h1"))
    scene.fail_host(LOST, 1)
    assert scene.state is JobState.RESTARTING
    scene.notice(1)
    assert orders_for(scene.job, host(0), 1)[0] == WritePart(1, 0, 40)
    assert scene.orders_of(1) == []
    scene.write()
    assert scene.orders_of(1) == [Leave("preemption notice")]


def test_a_notice_before_the_first_attempt_is_waited_out() -> None:
    scene = Served(hosts=2)
    scene.do(Left(scene.now, host(1), scene.number(host(1))))
    scene.pass_secs(5)
    scene.notice(0)
    assert scene.state is JobState.AWAY
    assert scene.orders_of(0) == [Leave("preemption notice")]
    scene.join(host(1))
    assert scene.state is JobState.AWAY
    scene.leave(0)
    scene.join(server(0))
    assert scene.state is JobState.TRAINING


def test_a_server_killed_before_the_commit_costs_the_epoch() -> None:
    scene = Served()
    scene.notice(1)
    scene.place(4)
    scene.leave(1)
    assert scene.state is JobState.AWAY, "hosts need not wait until it is lost"
    assert scene.job.commit == Commit()
    scene.join(server(1))
    start = next(one for one in orders_for(scene.job, host(0), 1) if isinstance(one, StartEpoch))
    assert (start.attempt, start.first_unit, start.stop_unit, start.continues) == (2, 0, 4, None), "to the same end"


def test_a_server_killed_while_its_rows_are_read_costs_the_commit() -> None:
    scene = Served()
    scene.notice(1)
    scene.place(4)
    scene.drain()
    scene.leave(1)
    assert scene.state is JobState.AWAY
    assert scene.job.pending is None


def test_a_server_killed_while_the_commit_is_published_costs_nothing() -> None:
    scene = Served()
    scene.notice(1)
    scene.place(4)
    scene.drain()
    scene.write()
    scene.leave(1)
    assert scene.state is JobState.COMMITTING
    scene.publish()
    assert (scene.state, scene.job.commit) == (JobState.AWAY, Commit(1, 1, 4))


def test_a_server_that_another_process_replaces_before_the_commit_costs_the_epoch() -> None:
    scene = Served()
    scene.notice(1)
    scene.place(4)
    scene.join(server(1))
    assert scene.state is JobState.TRAINING
    assert (scene.job.attempt, scene.job.commit) == (2, Commit())


def test_the_epoch_is_given_up_at_the_end_of_the_grace_period() -> None:
    scene = Served(leave_margin_secs=2.0)
    scene.notice(1, grace_secs=10.0)
    scene.pass_secs(9)
    assert scene.state is JobState.AWAY
    assert scene.orders_of(1) == [Leave("preemption notice")]
    assert scene.job.commit == Commit()


def test_a_server_without_a_notice_that_is_gone_ends_nothing_by_itself() -> None:
    scene = Served()
    scene.leave(1)
    scene.pass_secs(60, host(0), Role(RoleKind.READER, "r0"))
    assert scene.job.members.keys() == {host(0), Role(RoleKind.READER, "r0")}
    assert scene.state is JobState.TRAINING


def test_an_unused_server_leaves_at_once() -> None:
    scene = Served(least_servers=1)
    scene.notice(1)
    scene.commit_early(4)
    scene.leave(1)
    scene.join(server(1))
    scene.notice(1)
    assert scene.state is JobState.TRAINING
    assert scene.orders_of(1) == [Leave("preemption notice")]
    scene.commit()
    assert scene.state is JobState.DONE


def test_a_notice_for_the_whole_job_leaves_its_servers() -> None:
    scene = Served()
    scene.do(Notice(scene.now, 30.0, None))
    scene.commit_early(4)
    assert scene.state is JobState.AWAY
    assert scene.job.away == {host(0)}
    assert scene.orders_of(0) == []


def test_servers_stay_through_a_hold_and_may_leave_in_it() -> None:
    scene = Served()
    scene.fail_host(NAN)
    assert scene.state is JobState.HELD
    assert scene.orders_of(0) == scene.orders_of(1) == []
    scene.notice(1)
    assert scene.orders_of(1) == [Leave("preemption notice")]
    scene.leave(1)
    scene.do(Released(scene.now))
    scene.join(Role(RoleKind.READER, "r0"), host(0))
    assert scene.state is JobState.AWAY
    scene.join(server(1))
    assert scene.state is JobState.TRAINING


def test_a_stopped_job_needs_no_server_any_more() -> None:
    scene = Served()
    scene.notice(1)
    scene.do(StopAsked(scene.now))
    scene.leave(1)
    assert scene.state is JobState.STOPPED
    assert orders_for(scene.job, server(0), 1) == ()
    assert orders_for(scene.job, server(1), 9) == ()


def test_a_server_that_is_no_member_joins_again() -> None:
    scene = Served()
    scene.leave(1)
    assert orders_for(scene.job, server(1), 1) == (Rejoin(2),)
    scene.do(Heartbeat(scene.now, server(1), 1))
    scene.do(Tick(scene.now))
    assert server(1) not in scene.job.members


class Spared(Served):
    """A job with tables on two servers, and with a spare."""

    def __init__(self, there: int = 3, **settings: object) -> None:
        super().__init__(there, servers=3, spare_servers=1, **settings)

    def start(self) -> StartEpoch:
        return next(one for one in orders_for(self.job, host(0), 1) if isinstance(one, StartEpoch))


def test_a_spare_takes_the_place_of_a_server_and_the_job_does_not_wait() -> None:
    """The tables are loaded from the commit; a server that is back is the spare."""
    scene = Spared(stops=(40, 80, 100), overlap=True)
    assert scene.start().unused_servers == ("s2",)
    scene.notice(0)
    assert scene.state is JobState.ENDING
    scene.commit_early(4)
    assert scene.state is JobState.TRAINING
    start = scene.start()
    assert (start.continues, start.commit, start.unused_servers) == (None, Commit(1, 1, 4), ("s0",))
    assert scene.orders_of(0) == [Leave("preemption notice")]
    scene.leave(0)
    scene.join(server(0))
    scene.drain()
    assert (scene.state, scene.start().continues) == (JobState.TRAINING, 2), (
        "the tables stay on the servers that have them"
    )
    assert scene.start().unused_servers == ("s0",)
    scene.write()
    scene.publish()
    scene.notice(2)
    scene.commit_early(44)
    assert scene.start().unused_servers == ("s2",)


def test_a_notice_for_a_spare_ends_no_epoch() -> None:
    scene = Spared()
    scene.notice(2)
    assert (scene.state, scene.job.attempt) == (JobState.TRAINING, 1)
    assert scene.orders_of(2) == [Leave("preemption notice")]
    scene.leave(2)
    scene.notice(0)
    scene.commit_early(4)
    assert scene.state is JobState.AWAY, "there is no spare now"
    scene.join(server(2))
    assert scene.start().unused_servers == ("s0",)


def test_a_spare_that_does_not_run_is_waited_for() -> None:
    scene = Spared(2)
    scene.notice(0, 1)
    scene.commit_early(4)
    assert scene.state is JobState.AWAY
    scene.join(server(1))
    assert scene.state is JobState.AWAY
    scene.join(server(2))
    assert scene.start().unused_servers == ("s0",)


def test_with_a_least_number_the_job_goes_on_with_fewer_and_takes_a_spare_later() -> None:
    scene = Spared(2, least_servers=1, stops=(40, 80, 100))
    scene.notice(0)
    scene.commit_early(4)
    assert scene.start().unused_servers == ("s0", "s2"), "the spare does not run"
    scene.leave(0)
    scene.join(server(2))
    scene.commit()
    assert scene.start().unused_servers == ("s0",)


def test_a_server_killed_before_the_commit_gives_its_place_to_the_spare() -> None:
    scene = Spared()
    scene.notice(1)
    scene.leave(1)
    assert scene.state is JobState.TRAINING
    start = scene.start()
    assert (start.attempt, start.commit, start.unused_servers) == (2, Commit(), ("s1",))


@pytest.mark.parametrize(("servers", "spares"), [(1, 1), (0, 1), (3, 0), (2, -1)])
def test_spares_are_fewer_than_the_servers(servers: int, spares: int) -> None:
    with pytest.raises(InputError, match="fewer than the servers"):
        JobSettings(servers=servers, spare_servers=spares)


class Scaled(Served):
    """A job that has its tables on two to four servers, of which two have joined."""

    def __init__(self, there: int = 2, **settings: object) -> None:
        super().__init__(there, servers=4, scales_from=2, **settings)

    def start(self) -> StartEpoch:
        return next(one for one in orders_for(self.job, host(0), 1) if isinstance(one, StartEpoch))

    def want(self, servers: int) -> None:
        self.do(ServersChanged(self.now, servers))


def test_the_epoch_ends_early_once_all_servers_that_are_wanted_have_joined() -> None:
    scene = Scaled(stops=(40, 80, 100), overlap=True)
    assert scene.start().unused_servers == ("s2", "s3")
    assert scene.job.running_servers == ("s0", "s1")
    scene.want(4)
    assert (scene.state, scene.job.running_servers) == (JobState.TRAINING, ("s0", "s1", "s2", "s3"))
    scene.join(server(3))
    assert scene.state is JobState.TRAINING, "s2 is not there yet"
    scene.join(server(2))
    assert scene.state is JobState.ENDING
    scene.commit_early(4)
    start = scene.start()
    assert (scene.state, start.continues, start.commit, start.unused_servers) == (
        JobState.TRAINING,
        None,
        Commit(1, 1, 4),
        (),
    )
    scene.drain()
    assert (scene.state, scene.start().continues) == (JobState.TRAINING, 2), "epochs overlap again"


def test_a_natural_end_takes_the_servers_that_are_there() -> None:
    scene = Scaled(stops=(40, 100))
    scene.want(4)
    scene.join(server(3))
    scene.drain()
    scene.write()
    scene.publish()
    assert scene.start().unused_servers == ("s2",)
    scene.join(server(2))
    assert scene.state is JobState.ENDING
    scene.commit_early(44)
    assert scene.start().unused_servers == ()


def test_servers_that_are_not_needed_any_more_leave_once_the_tables_are_on_the_others() -> None:
    scene = Scaled(4, stops=(40, 100))
    scene.want(4)
    scene.commit_early(4)
    scene.want(3)
    assert scene.state is JobState.ENDING
    assert scene.job.running_servers == ("s0", "s1", "s2", "s3"), "its rows are still to be committed"
    scene.commit_early(8)
    assert (scene.start().unused_servers, scene.job.running_servers) == (("s3",), ("s0", "s1", "s2"))
    scene.notice(3)
    assert scene.orders_of(3) == [Leave("preemption notice")]
    scene.leave(3)
    assert (scene.state, scene.job.away) == (JobState.TRAINING, frozenset())
    scene.drain()
    scene.write()
    scene.publish()
    assert scene.start().unused_servers == ("s3",)


def test_a_server_with_a_notice_is_replaced_by_another_one() -> None:
    scene = Scaled()
    scene.notice(1)
    assert scene.job.running_servers == ("s0", "s1")
    scene.commit_early(4)
    assert scene.state is JobState.AWAY, "until another one has started"
    assert scene.job.running_servers == ("s0", "s2")
    scene.leave(1)
    scene.join(server(2))
    assert (scene.state, scene.start().unused_servers) == (JobState.TRAINING, ("s1", "s3"))
    scene.join(server(1))
    assert (scene.state, scene.job.running_servers) == (JobState.TRAINING, ("s0", "s2")), (
        "the tables stay where they are"
    )


def test_a_server_that_is_away_is_wanted_back_where_no_other_can_take_its_place() -> None:
    scene = Scaled(4)
    scene.want(4)
    scene.commit_early(4)
    assert scene.start().unused_servers == ()
    scene.notice(1)
    scene.commit_early(8)
    assert (scene.state, scene.start().unused_servers) == (JobState.TRAINING, ("s1",)), (
        "it does not wait: three are enough"
    )
    assert scene.job.running_servers == ("s0", "s1", "s2", "s3")
    scene.leave(1)
    scene.join(server(1))
    assert scene.state is JobState.ENDING
    scene.commit_early(12)
    assert scene.start().unused_servers == ()


@pytest.mark.parametrize("servers", [0, 1, 9])
def test_a_number_out_of_the_range_is_the_nearest_one_in_it(servers: int) -> None:
    scene = Scaled(4)
    scene.want(servers)
    assert scene.job.wanted_servers == (4 if servers == 9 else 2)


def test_a_fixed_number_does_not_change() -> None:
    scene = Served()
    scene.do(ServersChanged(scene.now, 1))
    assert (scene.state, scene.job.wanted_servers, scene.job.next_unused) == (JobState.TRAINING, 0, ())


def test_a_job_that_is_started_again_keeps_its_number() -> None:
    scene = Scaled(4)
    scene.want(3)
    again = resume_job(scene.job, scene.job.settings, Commit(1, 1, 4))
    assert (again.wanted_servers, again.running_servers, again.next_unused) == (3, ("s0", "s1", "s2"), ("s3",))
    assert resume_job(scene.job, JobSettings(), Commit()).scaled_servers == 0


@pytest.mark.parametrize("wrong", [{"servers": 1, "scales_from": 2}, {"servers": 4, "scales_from": 2, "spare_servers": 1},
                                   {"servers": 4, "scales_from": 2, "least_servers": 1}])  # fmt: skip
def test_a_range_of_servers_has_no_other_rule(wrong: dict[str, int]) -> None:
    with pytest.raises(InputError, match="servers that scale"):
        JobSettings(**wrong)  # type: ignore[arg-type]
