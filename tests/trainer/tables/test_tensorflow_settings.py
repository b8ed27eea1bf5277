"""Every setting of TensorFlow's embedding configuration is converted, or refused by name."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from trainer.errors import UnsupportedSetting
from trainer.tables import (
    FTRL,
    SGD,
    Adagrad,
    AdagradMomentum,
    Adam,
    Constant,
    FeatureSpec,
    Normal,
    Quantization,
    RowWiseAdagrad,
    TableSpec,
    Uniform,
    from_tensorflow,
    to_tensorflow,
)
from trainer.tables.tensorflow_optimizers import optimizer_to_tensorflow

tf = pytest.importorskip("tensorflow")
embedding = tf.tpu.experimental.embedding


def test_a_configuration_converts():
    words = embedding.TableConfig(100, 8, optimizer=embedding.SGD(0.5), combiner="sum", name="words")
    other = embedding.TableConfig(10, 4, initializer=tf.random_uniform_initializer(-0.5, 0.25))
    features = from_tensorflow(
        {
            "query": embedding.FeatureConfig(words),
            "ad": {"title": embedding.FeatureConfig(words), "user": embedding.FeatureConfig(other, name="who")},
        },
        embedding.Adagrad(0.1, 0.2),
    )
    table = TableSpec("words", 100, 8, SGD(0.5), "sum", Normal(0.0, 1 / math.sqrt(8)))
    anonymous = TableSpec("table_1", 10, 4, Adagrad(0.1, 0.2), "mean", Uniform(-0.5, 0.25))
    assert features == (FeatureSpec("ad/title", table), FeatureSpec("who", anonymous), FeatureSpec("query", table))


def test_a_single_feature_and_other_initializers_convert():
    for initializer, expected in (
        (tf.zeros_initializer(), Constant(0.0)),
        (tf.ones_initializer(), Constant(1.0)),
        (tf.constant_initializer(0.5), Constant(0.5)),
        (tf.random_normal_initializer(1.0, 2.0), Normal(1.0, 2.0, truncated=False)),
    ):
        table = embedding.TableConfig(10, 4, initializer, embedding.SGD(1.0))
        (feature,) = from_tensorflow(embedding.FeatureConfig(table))
        assert feature.table.initializer == expected


def test_all_settings_of_a_table_and_a_feature_convert():
    def rate():
        return 0.5

    table = embedding.TableConfig(
        10, 4, tf.zeros_initializer(),
        embedding.AdagradMomentum(
            rate, 0.9, True, 3, 0.95, 1e-6, clip_weight_min=-1.0, clip_weight_max=2, weight_decay_factor=0.1,
            multiply_weight_decay_factor_by_learning_rate=True, clipvalue=(None, 3.0), low_dimensional_packing_status=True,
        ),
        combiner="sqrtn", name="t", quantization_config=embedding.QuantizationConfig(8, -1.0, 1),
    )  # fmt: skip
    (feature,) = from_tensorflow(embedding.FeatureConfig(table, 7, validate_weights_and_indices=False, name="f"))
    optimizer = AdagradMomentum(
        rate, 0.9, True, 3.0, 0.95, 1e-6, clip_weight_min=-1.0, clip_weight_max=2.0, clip_gradient_max=3.0,
        weight_decay_factor=0.1, multiply_weight_decay_factor_by_learning_rate=True, low_dimensional_packing_status=True,
    )  # fmt: skip
    expected = TableSpec("t", 10, 4, optimizer, "sqrtn", Constant(0.0), Quantization(8, -1.0, 1.0))
    assert feature == FeatureSpec("f", expected, 7)


def test_a_scalar_clipvalue_is_two_limits():
    table = embedding.TableConfig(10, 4, optimizer=embedding.Adam(0.1, clipvalue=2.0))
    (feature,) = from_tensorflow(embedding.FeatureConfig(table, output_shape=[16]))
    assert feature.table.optimizer == Adam(0.1, clip_gradient_min=-2.0, clip_gradient_max=2.0)


def unsupported():
    def table(**settings):
        return embedding.TableConfig(10, 4, **{"optimizer": embedding.SGD(1.0), **settings})

    def no_slots(*_):
        return {}

    feature = embedding.FeatureConfig
    custom = embedding.CustomOptimizer(lambda *arguments: arguments[1])
    yield "combiner", feature(table(combiner=embedding.CustomCombiner(lambda valency, rows: rows[0], 4)))
    yield "output_shape", feature(table(), output_shape=[2, 3])
    yield "output_shape", feature(table(), 3, output_shape=[2])
    yield "optimizer", feature(table(optimizer=custom))
    yield "optimizer", feature(table(optimizer=None))
    yield "slot_variable_creation_fn", feature(table(optimizer=embedding.Adam(0.1, slot_variable_creation_fn=no_slots)))
    yield "layout", feature(table(layout=object()))
    yield "dtype", feature(table(dtype=tf.int32))
    yield "initializer", feature(table(initializer=tf.keras.initializers.Orthogonal()))
    yield "initializer", feature(table(initializer=embedding.RowIdInitializer()))
    yield "value", "not a feature"


def test_unsupported_settings_are_refused_by_name():
    for setting, config in unsupported():
        with pytest.raises(UnsupportedSetting, match=f"^{setting} must be"):
            from_tensorflow({"f": config})


def test_every_setting_is_known():
    """A release of TensorFlow with another setting must be looked at before it is used."""

    def attributes(made):
        return set(vars(made)) - {"_validate_weights_and_indices"}

    table = embedding.TableConfig(10, 4, name="t")
    assert attributes(table) == {"vocabulary_size", "dim", "initializer", "optimizer", "combiner", "name",
                                 "quantization_config", "layout", "dtype"}  # fmt: skip
    assert attributes(embedding.FeatureConfig(table)) == {
        "table", "max_sequence_length", "name", "output_shape", "validate_weights_and_indices"
    }  # fmt: skip
    for spec in (SGD, Adagrad, AdagradMomentum, Adam, FTRL):
        theirs = attributes(getattr(embedding, spec.__name__)()) - {"slot_variable_creation_fn"}
        ours = set(spec.__dataclass_fields__) - {"admit_after"}  # TensorFlow trains each row from its first update on
        renamed = {"initial_accumulator": "initial_accumulator_value"}
        assert theirs == {renamed.get(name, name) for name in ours}, spec


positive = st.floats(0.0009765625, 10.0, width=32)
share = st.floats(0.0, 0.9375, width=32)
limits = st.one_of(st.none(), st.floats(-5.0, 0.0, width=32)), st.one_of(st.none(), st.floats(0.0, 5.0, width=32))
rates = st.one_of(positive, st.just(lambda: 0.25))


def common():
    return {
        "clip_weight_min": limits[0],
        "clip_weight_max": limits[1],
        "clip_gradient_min": limits[0],
        "clip_gradient_max": limits[1],
        "weight_decay_factor": st.one_of(st.none(), share),
        "multiply_weight_decay_factor_by_learning_rate": st.booleans(),
        "low_dimensional_packing_status": st.booleans(),
        "learning_rate": rates,
    }


optimizers = st.one_of(
    st.builds(SGD, **common()),
    st.builds(SGD, rates, use_gradient_accumulation=st.booleans()),
    st.builds(Adagrad, initial_accumulator=positive, **common()),
    st.builds(AdagradMomentum, momentum=share, use_nesterov=st.booleans(), exponent=positive, beta2=share,
              epsilon=positive, **common()),
    st.builds(Adam, beta_1=share, beta_2=share, epsilon=positive, lazy_adam=st.booleans(), sum_inside_sqrt=st.booleans(),
              **common()),
    st.builds(FTRL, learning_rate_power=st.floats(-2.0, 0.0), l1_regularization_strength=share, beta=share,
              l2_regularization_strength=share, initial_accumulator=positive, allow_zero_accumulator=st.booleans(),
              multiply_linear_by_learning_rate=st.booleans(), **common()),
)  # fmt: skip
initializers = st.one_of(
    st.none(),
    st.builds(Constant, positive),
    st.builds(lambda low, width: Uniform(low, low + width), share, positive),
    st.builds(Normal, share, positive, st.booleans()),
)
quantizations = st.one_of(st.none(), st.builds(Quantization, st.integers(2, 300), st.just(-1.0), positive))
tables = st.builds(
    lambda **values: values, vocabulary_size=st.integers(1, 10**9), dim=st.integers(1, 512), optimizer=optimizers,
    combiner=st.sampled_from(["sum", "mean", "sqrtn"]), initializer=initializers, quantization=quantizations,
)  # fmt: skip


@st.composite
def feature_lists(draw):
    made = [
        TableSpec(f"table {k}", **values) for k, values in enumerate(draw(st.lists(tables, min_size=1, max_size=3)))
    ]
    places = draw(st.lists(st.tuples(st.sampled_from(made), st.integers(0, 5)), min_size=1, max_size=6))
    return tuple(FeatureSpec(f"feature {k}", table, length) for k, (table, length) in enumerate(places))


@settings(max_examples=scaled(200))
@given(features=feature_lists())
def test_specs_survive_a_round_trip(features):
    configs = to_tensorflow(features)
    assert len({id(config.table) for config in configs}) == len({feature.table.name for feature in features})
    expected = [
        replace(feature, table=replace(feature.table, initializer=feature.table.effective_initializer))
        for feature in features
    ]
    assert list(from_tensorflow(configs)) == expected


@pytest.mark.parametrize(
    ("optimizer", "problem"),
    [
        (RowWiseAdagrad(0.1), "RowWiseAdagrad"),
        (FTRL(0.1, initial_accumulator=0.0, allow_zero_accumulator=True), "positive"),
        (Adam(0.1, lazy_adam=False, use_gradient_accumulation=False), "accumulation"),
    ],
)
def test_what_tensorflow_does_not_have_is_refused(optimizer, problem):
    with pytest.raises(UnsupportedSetting, match=r"^optimizer must be") as caught:
        to_tensorflow([FeatureSpec("f", TableSpec("t", 10, 4, optimizer))])
    assert problem in f"{caught.value.value} {caught.value.next_step}"


def test_rows_that_updates_leave_out_are_not_tensorflows():
    with pytest.raises(UnsupportedSetting, match="admit_after must be 1"):
        optimizer_to_tensorflow(SGD(0.1, admit_after=2), table="t")
