"""The share of the learning rates by step: its laws, and what is refused."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from trainer.errors import ConfigError
from trainer.options.config import TrainConfig
from trainer.options.rate_schedule import RateSchedule

SCHEDULES = st.builds(
    lambda warmup, decay, steps, end, power: RateSchedule.read(
        {"warmup_steps": warmup, "decay": decay, "decay_steps": steps, "end_share": end, "power": power}
    ),
    st.integers(0, 50),
    st.sampled_from(["polynomial", "cosine"]),
    st.integers(1, 200),
    st.floats(1e-6, 1.0),
    st.floats(0.1, 4.0),
)


@settings(max_examples=scaled(200))
@given(SCHEDULES, st.integers(0, 400))
def test_shares_rise_in_the_warm_up_and_fall_afterwards(schedule, step):
    share, after = schedule.share(step), schedule.share(step + 1)
    assert 0 < share <= 1
    if step + 1 < schedule.warmup_steps:
        assert share < after
        assert share == (step + 1) / schedule.warmup_steps
    elif step >= schedule.warmup_steps:
        assert after <= share
        assert share >= schedule.end_share
    last = schedule.warmup_steps + schedule.decay_steps
    assert schedule.share(last) == schedule.share(last + step) == pytest.approx(schedule.end_share)
    assert schedule.share(schedule.warmup_steps) == pytest.approx(1.0)
    assert RateSchedule.read(schedule.to_document()) == schedule


def test_the_shapes_of_decays():
    line = RateSchedule(decay="polynomial", decay_steps=10, end_share=0.2)
    assert line.share(5) == pytest.approx(0.6)
    square = RateSchedule(decay="polynomial", decay_steps=10, end_share=0.2, power=2.0)
    assert square.share(5) == pytest.approx(0.2 + 0.8 * 0.25)
    cosine = RateSchedule(decay="cosine", decay_steps=10, end_share=0.2)
    assert cosine.share(2) == pytest.approx(0.2 + 0.8 * 0.5 * (1 + math.cos(math.pi * 0.2)))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ([], "learning_rate_schedule must be an object of options"),
        ({"warmup": 3}, "an option of learning_rate_schedule must be a known one"),
        ({}, "learning_rate_schedule.warmup_steps must be above 0 without a decay"),
        ({"warmup_steps": -1}, "learning_rate_schedule.warmup_steps must be an integer in"),
        ({"warmup_steps": True}, "learning_rate_schedule.warmup_steps must be an integer in"),
        ({"decay": "exponential", "decay_steps": 3}, "learning_rate_schedule.decay must be one of none, polynomial, cosine"),
        ({"decay": "cosine"}, "learning_rate_schedule.decay_steps must be above 0 with a decay"),
        ({"warmup_steps": 2, "decay_steps": 3}, "learning_rate_schedule.decay_steps must be above 0 with a decay"),
        ({"decay": "cosine", "decay_steps": 3, "end_share": 0.0}, r"learning_rate_schedule.end_share must be a number in \(0, 1\]"),
        ({"decay": "cosine", "decay_steps": 3, "end_share": math.nan}, "learning_rate_schedule.end_share must be a number"),
        ({"decay": "polynomial", "decay_steps": 3, "power": math.inf}, "learning_rate_schedule.power must be a number"),
    ],
)  # fmt: skip
def test_schedules_that_are_refused(options, problem):
    with pytest.raises(ConfigError, match=problem):
        TrainConfig("run", learning_rate_schedule=options)


def test_ftrl_needs_one_rate():
    schedule = {"warmup_steps": 10}
    with pytest.raises(
        ConfigError, match="embedding_optimizer must be another one than ftrl with learning_rate_schedule"
    ):
        TrainConfig("run", embedding_optimizer="ftrl", learning_rate_schedule=schedule)
    TrainConfig("run", embedding_optimizer="ftrl", learning_rate_schedule=schedule, deep=False, linear=True)
