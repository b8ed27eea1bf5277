"""Whether a job still trains, for a command that waits for it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from trainer.job.control.job_presence import AWAY_SECS, JobPresence
from trainer.scheduling.transitions import JobState
from trainer.wire.flight.error_documents import Unreachable
from transforms.errors import InputError


class Controller:
    """Answers with its state, or does not answer."""

    def __init__(self) -> None:
        self.secs, self.said = 0.0, JobState.TRAINING
        self.presence = JobPresence(self.ask, clock=lambda: self.secs)

    def ask(self):
        if isinstance(self.said, Exception):
            raise self.said
        return SimpleNamespace(state=self.said)


@pytest.mark.parametrize("state", JobState)
def test_a_job_trains_until_it_is_over(state):
    controller = Controller()
    controller.said = state
    assert controller.presence.is_training() == (state not in (JobState.DONE, JobState.STOPPED))
    assert controller.presence.still_trains() == controller.presence.is_training()


def test_a_controller_that_is_started_again_is_waited_for():
    controller = Controller()
    for _ in range(2):
        controller.said, controller.secs = JobState.TRAINING, controller.secs + 1000
        assert controller.presence.still_trains()
        controller.said = Unreachable("the controller of the job is not running")
        controller.secs += AWAY_SECS - 1
        assert controller.presence.still_trains()
    controller.secs += 2
    assert not controller.presence.still_trains()
    with pytest.raises(Unreachable):
        controller.presence.is_training()


def test_another_service_at_the_address_is_an_error():
    controller = Controller()
    controller.said = InputError("the token must be that of the job")
    with pytest.raises(InputError):
        controller.presence.still_trains()
