"""Training that goes on after losses of servers, and after their preemption notices."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainer.errors import ServerLost
from trainer.run.loop import TrainingLost, TrainReport
from trainer.run.server_losses import MOST_LOSSES, train_through_losses
from trainer.tables.hot_figures import HotFigures


def report(events: int, *, finished: bool, resumed_from: str = "", hot: HotFigures | None = None) -> TrainReport:
    return TrainReport(
        epochs=1, events=events, seconds=0.5, history=(), ledger=None, resumed_from=resumed_from, finished=finished,
        checkpoint="", skipped_checkpoints=(), hot=hot,
    )  # fmt: skip


class Run:
    """A run that loses a server at the end of each attempt but the last one, after the given numbers of new checkpoints.

    ``noticed``: the server had a notice each time; ``early``: so many further attempts end early by one, without a loss.
    """

    def __init__(self, *checkpoints: int, noticed: bool = False, early: int = 0) -> None:
        self.left, self.epochs, self.seen, self.attempts = list(checkpoints), 5, [], []
        self.noticed, self.early, self.settled = noticed, early, 0

    def train(self, attempt: int) -> TrainReport:
        self.attempts.append(attempt)
        assert self.settled == len(self.attempts)
        if self.left:
            self.epochs += self.left.pop(0)
            raise ServerLost("lost")
        self.early -= 1
        return report(10, finished=self.early < 0, resumed_from=self.newest())

    def must_end_early(self) -> bool:
        return self.noticed

    def settle(self) -> None:
        self.settled += 1

    def newest(self) -> str:
        return f"epoch-{self.epochs}"

    def result(self) -> TrainReport:
        return train_through_losses(self.train, self.newest, lambda error, newest: self.seen.append(newest), self)


def test_training_without_a_loss_is_called_once():
    run = Run()
    assert run.result().events == 10
    assert (run.seen, run.attempts) == ([], [1])


def test_losses_with_checkpoints_between_them_may_be_many():
    run = Run(*[1] * 20)
    assert run.result().finished
    assert run.attempts == list(range(1, 22))
    assert run.seen == [f"epoch-{5 + k}" for k in range(1, 21)]


def test_losses_without_a_new_checkpoint_end():
    run = Run(*[0] * MOST_LOSSES)
    assert run.result().finished
    assert len(run.seen) == MOST_LOSSES
    run = Run(*[0] * (MOST_LOSSES + 1))
    with pytest.raises(ServerLost):
        run.result()
    assert len(run.seen) == MOST_LOSSES


def test_a_new_checkpoint_begins_the_count_again():
    run = Run(*[0] * MOST_LOSSES, 1, *[0] * (MOST_LOSSES - 1), 1, 0)
    assert run.result().finished
    with pytest.raises(ServerLost):
        Run(1, *[0] * MOST_LOSSES).result()


def test_losses_of_servers_with_a_notice_are_no_failures():
    run = Run(*[0] * (3 * MOST_LOSSES), noticed=True)
    assert run.result().finished
    assert len(run.seen) == 3 * MOST_LOSSES


def test_training_goes_on_after_each_early_end_and_reports_all_of_it():
    run = Run(early=3)
    found = run.result()
    assert run.attempts == [1, 2, 3, 4]
    assert (found.finished, found.events, found.epochs, found.seconds) == (True, 40, 4, 2.0)


def test_the_report_has_what_was_trained_before_a_loss():
    """Also of hot rows. A loss before training began has nothing to add."""
    hot = HotFigures(20, 400, 10, 7, 5, 4, 100, 900, 300)
    outcomes = [
        TrainingLost(ServerLost("lost", where="server 1"), report(30, finished=False, resumed_from="a", hot=hot)),
        ServerLost("lost"),
        report(5, finished=False, resumed_from="b", hot=replace(hot, rows=30)),
        TrainingLost(ServerLost("lost"), report(0, finished=False, resumed_from="c")),
        report(7, finished=True, resumed_from="d", hot=hot),
    ]

    def train(attempt: int) -> TrainReport:
        found = outcomes[attempt - 1]
        if isinstance(found, Exception):
            raise found
        return found

    found = train_through_losses(train, lambda: "", lambda error, newest: None, Run())
    assert (found.events, found.epochs, found.seconds, found.resumed_from) == (42, 4, 2.0, "a")
    assert found.hot == HotFigures(30, 400, 30, 21, 15, 12, 300, 2700, 900)
    assert found.finished


def test_other_errors_end_training():
    def fail(attempt: int) -> TrainReport:
        raise ValueError("other")

    with pytest.raises(ValueError, match="other"):
        train_through_losses(fail, lambda: "", lambda error, newest: None, Run())
