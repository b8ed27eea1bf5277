from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trainer.config import TrainConfig
from trainer.training.choices import (
    Candidate,
    DataFacts,
    Trial,
    batch_rows_of,
    candidates_of,
    chosen_by_rule,
    decide,
    events_per_epoch_of,
    most_passes,
)

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
    assert most_passes(facts(events)) >= most_passes(facts(events + more)) >= 1


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
    by_rule = chosen_by_rule(known, given_options)
    candidates = candidates_of(known, given_options)
    assert candidates
    for candidate in candidates:
        assert all(
            candidate.options[name] == given_options[name] for name in candidate.options if name in given_options
        )
    trials = [Trial(candidate, 1, np.full(50, 0.1)) for candidate in candidates]
    by_trial = decide(known, trials, np.full(50, 0.7), given_options)
    for choices in (by_rule, by_trial):
        assert not choices.options.keys() & given_options.keys()
        assert choices.options.keys() == choices.reasons.keys()
    TrainConfig("run", **{**given_options, **by_rule.options, **by_trial.options})
    assert (
        not {"events_per_epoch", "partitions_per_epoch"} <= {*given_options, *by_rule.options}
        or {
            "events_per_epoch",
            "partitions_per_epoch",
        }
        <= given_options.keys()
    )


def test_a_network_is_tried_only_without_options_of_one():
    def networks(given):
        return {one.options["network"] for one in candidates_of(facts(), given) if one.options["deep"]}

    assert networks({}) == networks({"linear_learning_rate": 0.1}) == {"dlrm", "dcn"}
    assert networks({"network": "dcn"}) == {"dcn"}
    assert networks({"deep": True}) == networks({"top_mlp": [8]}) == {"dlrm"}
    assert all("network" not in one.options for one in candidates_of(facts(), {}) if not one.options["deep"])


CAUTIOUS, BOLD = (Candidate(name, {"deep": name == "bold", "linear": True}) for name in ("cautious", "bold"))


def test_the_lowest_loss_wins_where_the_gain_is_clear():
    random = np.random.default_rng(0)
    base = random.exponential(size=1000)
    trials = [Trial(CAUTIOUS, 4, base * 0.9), Trial(BOLD, 1, base * 0.8)]
    choices = decide(facts(), trials, base, {})
    assert (choices.options["deep"], choices.options["passes"]) == (True, 1)
    assert "0.8000 of the rate's alone" in choices.reasons["deep"]


def test_the_most_cautious_candidate_wins_without_a_clear_gain():
    random = np.random.default_rng(0)
    base = random.exponential(size=200)
    noise = random.normal(size=200)
    trials = [Trial(CAUTIOUS, 1, base), Trial(BOLD, 1, base - 0.01 - (noise - noise.mean()))]
    choices = decide(facts(), trials, base, {})
    assert choices.options["deep"] is False
    assert "no candidate" in choices.reasons["deep"]


def test_a_handful_of_rare_labels_is_no_evidence():
    base = np.ones(100)
    trials = [Trial(CAUTIOUS, 1, base), Trial(BOLD, 1, base * 0.5)]
    assert decide(facts(400, 400, 8), trials, base, {}).options["deep"] is False
    assert decide(facts(400, 400, 40), trials, base, {}).options["deep"] is True


def test_a_large_log_is_passed_once():
    choices = decide(facts(10**8), [Trial(CAUTIOUS, 1, np.zeros(9))], np.ones(9), {})
    assert choices.options["passes"] == 1
    assert "passed once" in choices.reasons["passes"]
