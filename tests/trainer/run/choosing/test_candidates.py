"""The candidates of a trial."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.run.choosing.test_rules import facts
from trainer.options.config import TrainConfig
from trainer.options.slice_tables import check_slice_tables
from trainer.run.choosing.candidates import candidates_of, most_passes, variants_of
from trainer.run.choosing.rules import batch_rows_of


def test_a_network_is_tried_only_without_options_of_one():
    def networks(given):
        return {one.options["network"] for one in candidates_of(given) if one.options["deep"]}

    assert networks({}) == networks({"linear_learning_rate": 0.1}) == {"dlrm", "dcn", "fm"}
    assert networks({"network": "dcn"}) == {"dcn"}
    assert networks({"network": "fm"}) == {"fm"}
    assert networks({"deep": True}) == networks({"top_mlp": [8]}) == {"dlrm"}
    assert all("network" not in one.options for one in candidates_of({}) if not one.options["deep"])


def test_linear_models_come_first():
    kinds = [one.is_linear for one in candidates_of({})]
    assert kinds == sorted(kinds, reverse=True)
    assert kinds[0]


def test_a_linear_model_whose_steps_shrink_by_the_number_of_events_is_tried():
    """Its tables and its weights of numbers have the same optimizer; a given one is kept."""

    def tried(given):
        return [one for one in candidates_of(given) if one.options.get("linear_optimizer") == "newton"]

    (found,) = tried({})
    assert found.is_linear
    assert found.options["dense_optimizer"] == "newton"
    assert tried({"linear_optimizer": "newton"}) == tried({"passes": 3}) == [found]
    (slower,) = tried({"linear_optimizer": "newton", "linear_learning_rate": 0.5})
    assert slower.options["linear_learning_rate"] == 0.5
    for options in ({"linear_optimizer": "adagrad"}, {"dense_optimizer": "sgd"}, {"deep": True}, {"linear": False},
                    {"linear_learning_rate": 0.3}, {"dense_learning_rate": 0.02}):  # fmt: skip
        assert tried(options) == []
    assert [one for one in candidates_of({}, hosts=2) if one.options.get("linear_optimizer") == "newton"] == []
    assert found in candidates_of({"linear_optimizer": "newton"}, hosts=2)


@given(
    given_options=st.fixed_dictionaries(
        {},
        optional={
            "deep": st.booleans(),
            "linear": st.just(True),
            "network": st.sampled_from(["dlrm", "dcn", "fm"]),
            "linear_learning_rate": st.just(0.5),
            "embedding_learning_rate": st.just(0.7),
            "embedding_initial_stddev": st.just(0.3),
            "admit_after": st.just(2),
            "dense_optimizer": st.sampled_from(["adam", "newton"]),
            "linear_initial_accumulator": st.sampled_from([1.0, 5.0]),
            "embedding_dropout": st.just(0.1),
        },
    ),
    in_slice=st.booleans(),
)
def test_all_candidates_and_variants_are_valid_and_keep_what_is_given(given_options, in_slice):
    if in_slice:
        given_options = {name: value for name, value in given_options.items() if name != "admit_after"}
    found = candidates_of(given_options)
    assert found
    for candidate in found:
        for one in (candidate, *variants_of(candidate, given_options, embedded=True, slice_has_tables=in_slice)):
            merged = {**given_options, **one.options}
            assert all(merged[name] == value for name, value in given_options.items())
            config = TrainConfig("run", **merged)
            if in_slice:
                check_slice_tables(config)
    assert variants_of(found[0], given_options, embedded=False) == ()


@given(st.integers(1, 10**10), st.integers(0, 10**6))
def test_a_trial_is_bounded_in_events_and_steps(events, batch_rows):
    known = facts(events)
    passes = most_passes(known, batch_rows)
    assert 1 <= passes <= 16
    steps = -(-known.sampled // (batch_rows or batch_rows_of(events)))
    assert passes == 1 or (passes * known.sampled <= 160_000 and passes * steps <= 600)
    assert passes <= most_passes(known, batch_rows, is_linear=True) <= min(3 * passes, 16)
    assert most_passes(facts(3_000)) > most_passes(facts(40_000)) > most_passes(facts(10**6)) == 1
