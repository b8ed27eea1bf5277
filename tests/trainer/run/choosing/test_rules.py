from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trainer.options.config import TrainConfig
from trainer.run.choosing.rules import DataFacts, batch_rows_of, chosen_by_rule, events_per_epoch_of

counts = st.integers(1, 10**10)


def facts(events=10_000, sampled=None, positives=None, scaling=None):
    sampled = min(events, 100_000) if sampled is None else sampled
    return DataFacts(events, sampled, sampled // 20 if positives is None else positives, scaling or {}, True)


@given(events=counts, more=counts)
def test_batches_and_epochs_grow_with_the_data_within_bounds(events, more):
    batch, epoch = batch_rows_of(events), events_per_epoch_of(events)
    assert 64 <= batch <= 1024
    assert batch & (batch - 1) == 0
    assert batch <= batch_rows_of(events + more)
    assert epoch <= events_per_epoch_of(events + more)
    assert -(-events // epoch) <= 20, "checkpoints a pass"


@given(sampled=st.integers(1, 10**6), share=st.floats(0, 1))
def test_the_first_predictions_are_the_rate(sampled, share):
    positives = int(sampled * share)
    bias = chosen_by_rule(facts(sampled, sampled, positives), {}).options["initial_bias"]
    assert abs(1 / (1 + np.exp(-bias)) - positives / sampled) <= 0.5 / sampled + 1e-5


@given(
    given_options=st.fixed_dictionaries(
        {},
        optional={
            "batch_rows": st.sampled_from([7, 512]),
            "initial_bias": st.just(0.5),
            "events_per_epoch": st.just(9),
            "partitions_per_epoch": st.just(3),
            "passes": st.integers(1, 9),
            "deep": st.just(True),
            "linear_learning_rate": st.just(0.5),
            "embedding_learning_rate": st.just(0.7),
            "dense_scaling": st.just({}),
        },
    ),
    events=counts,
)
def test_what_is_given_is_never_chosen_and_what_is_chosen_has_a_reason(given_options, events):
    known = facts(events, scaling={"price": (("log", 1.0, 2.0),)})
    choices = chosen_by_rule(known, given_options)
    assert not choices.options.keys() & given_options.keys()
    assert choices.options.keys() == choices.reasons.keys()
    TrainConfig("run", **{**given_options, **choices.options})
    both = {"events_per_epoch", "partitions_per_epoch"}
    assert not both <= {*given_options, *choices.options} or both <= given_options.keys()


def test_a_new_run_has_no_units_that_stay_off_and_a_vector_in_the_place_of_numbers():
    assert chosen_by_rule(facts(), {}).options["activation"] == "leaky_relu"
    assert chosen_by_rule(facts(), {}).options["dense_bias"] is True
    assert "dense_bias" not in chosen_by_rule(facts(scaling={"price": (("plain", 0.0, 1.0),)}), {}).options
    assert "activation" not in chosen_by_rule(facts(), {"activation": "relu"}).options
    assert "activation" not in chosen_by_rule(facts(), {"deep": False}).options
