"""Training that goes on after losses of servers."""

from __future__ import annotations

import pytest

from trainer.errors import ServerLost
from trainer.training.server_losses import MOST_LOSSES, train_through_losses


class Run:
    """A run that loses a server at the end of each attempt but the last one, after the given numbers of new checkpoints."""

    def __init__(self, *checkpoints: int) -> None:
        self.left, self.epochs, self.seen, self.attempts = list(checkpoints), 5, [], []

    def train(self, attempt: int) -> str:
        self.attempts.append(attempt)
        if not self.left:
            return "trained"
        self.epochs += self.left.pop(0)
        raise ServerLost("lost")

    def newest(self) -> str:
        return f"epoch-{self.epochs}"

    def result(self) -> str:
        return train_through_losses(self.train, self.newest, lambda error, newest: self.seen.append(newest))


def test_training_without_a_loss_is_called_once():
    run = Run()
    assert (run.result(), run.seen) == ("trained", [])


def test_losses_with_checkpoints_between_them_may_be_many():
    run = Run(*[1] * 20)
    assert run.result() == "trained"
    assert run.attempts == list(range(1, 22))
    assert run.seen == [f"epoch-{5 + k}" for k in range(1, 21)]


def test_losses_without_a_new_checkpoint_end():
    run = Run(*[0] * MOST_LOSSES)
    assert (run.result(), len(run.seen)) == ("trained", MOST_LOSSES)
    run = Run(*[0] * (MOST_LOSSES + 1))
    with pytest.raises(ServerLost):
        run.result()
    assert len(run.seen) == MOST_LOSSES


def test_a_new_checkpoint_begins_the_count_again():
    run = Run(*[0] * MOST_LOSSES, 1, *[0] * (MOST_LOSSES - 1), 1, 0)
    assert run.result() == "trained"
    with pytest.raises(ServerLost):
        Run(1, *[0] * MOST_LOSSES).result()


def test_other_errors_end_training():
    def fail(attempt: int) -> None:
        raise ValueError("other")

    with pytest.raises(ValueError, match="other"):
        train_through_losses(fail, lambda: "", lambda error, newest: None)
