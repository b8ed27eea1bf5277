"""Modules of towers: their shapes, their formulas, and their gradients."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.synthetic import Synthetic, config
from trainer.errors import ConfigError, RunMismatch
from trainer.model.inputs import TypedInput, lay_out
from trainer.model.tower_shapes import tower_shapes
from transforms.types import Dense, DType

pytest.importorskip("tensorflow")

from tests.trainer.model.test_dense_model import (
    IDS,
    NO_LINEAR,
    NUMBERS,
    batch_for,
    crossed,
    mean_loss,
    model_of,
    relu_mlp,
)
from trainer.model.dense_model import DenseModel
from trainer.run.loop import train
from trainer.serving.trained import load_trained

TOWERS = [["c", "a"], ["b"]]
HALF = {"towers": TOWERS, "compression": 2}
SHAPED = {"towers": TOWERS, "dim": 2, "projections": 1}
MIXED = {"towers": TOWERS, "dim": 2, "combinations": 0.5, "projections": 1, "module": "combination"}
FLAT = {"towers": TOWERS, "dim": 4, "combinations": 0, "projections": 1}


def weights_of(model):
    return [array.astype(np.float64) for name, array in model.state().items() if name.startswith("weights/")]


def shapes_of(options, inputs=IDS, **others):
    made = config("run", tower_modules=options, **others)
    return tower_shapes(lay_out(inputs, config("run", **others)).features, made)


@pytest.mark.parametrize("options", [HALF, SHAPED, FLAT])
def test_a_dlrm_with_towers_equals_the_formulas_in_numpy(options):
    model = model_of([*IDS, *NUMBERS], tower_modules=options)
    activations, dense, _ = batch_for([*IDS, *NUMBERS])
    a, b, c = np.split(activations.astype(np.float64), 3, axis=1)
    weights, vectors = weights_of(model), []
    for inputs in ([a, c], [b]):
        if options is FLAT and len(inputs) == 1:
            vectors += inputs  # one vector of the width of the tower's one input
            continue
        if options is not FLAT:
            width, *weights = weights
            vectors += [one @ width for one in inputs]
        if options is not HALF:
            project, *weights = weights
            vectors.append(np.concatenate(inputs, axis=1) @ project)
    assert [one.shape[1] for one in vectors] == {2: [2] * 3, 3: [2] * 5, 4: [4] * 2}[
        2 if options is HALF else 3 if options is SHAPED else 4
    ]
    check_dlrm_above(model, weights, vectors, activations, dense)


def check_dlrm_above(model, weights, vectors, activations, dense):
    """That a model predicts by the dot products of ``vectors`` and the bottom MLP's result; ``weights``: those above the modules."""
    pairs = list(zip(weights[0::2], weights[1::2], strict=True))
    vectors = [*vectors, bottom := relu_mlp(dense, pairs[:2])]
    dots = [(vectors[i] * vectors[j]).sum(axis=1) for i in range(len(vectors)) for j in range(i)]
    hidden = relu_mlp(np.concatenate([bottom, np.stack(dots, axis=1)], axis=1), pairs[2:3])
    kernel, bias = pairs[3]
    expected = (hidden @ kernel + bias)[:, 0]
    np.testing.assert_allclose(model.predict(activations, NO_LINEAR, dense), expected, rtol=1e-4, atol=1e-5)


def test_modules_of_combinations_equal_their_formulas_in_numpy():
    model = model_of([*IDS, *NUMBERS], tower_modules=MIXED)
    activations, dense, _ = batch_for([*IDS, *NUMBERS])
    a, b, c = np.split(activations.astype(np.float64), 3, axis=1)
    weights, vectors = weights_of(model), []
    for inputs in ([a, c], [b]):
        width, combine, project = weights[:3]
        weights = weights[3:]
        projected = np.stack([one @ width for one in inputs], axis=2)  # [events, D, inputs]
        vectors += list(np.moveaxis(projected @ combine, 2, 0))
        vectors.append(np.concatenate(inputs, axis=1) @ project)
    assert [one.shape for one in vectors] == [(6, 2)] * 4
    check_dlrm_above(model, weights, vectors, activations, dense)


@pytest.mark.parametrize(
    ("rank", "own", "options"), [(0, 0, HALF), (2, 2, HALF), (0, 2, {"rank": 2}), (2, 2, {"width": 3})]
)
def test_a_dcn_with_towers_equals_the_formulas_in_numpy(rank, own, options):
    options = {"towers": TOWERS, **options}
    model = model_of([*IDS, *NUMBERS], network="dcn", cross_rank=rank, cross_layers=1, tower_modules=options)
    activations, dense, _ = batch_for([*IDS, *NUMBERS])
    a, b, c = np.split(activations.astype(np.float64), 3, axis=1)
    weights, outputs, each = weights_of(model), [], 3 if own else 2
    for inputs in (np.concatenate([a, c], axis=1), b):
        outputs.append(crossed(inputs, [weights[:each]], own) @ weights[each])
        weights = weights[each + 1 :]
    each = 3 if rank else 2
    assert [one.shape[1] for one in outputs] == {"compression": [4, 2], "rank": [4, 4], "width": [3, 3]}[[*options][1]]
    first = np.concatenate([*outputs, dense], axis=1)
    hidden = relu_mlp(crossed(first, [weights[:each]], rank), [weights[each : each + 2]])
    expected = (hidden @ weights[each + 2] + weights[each + 3])[:, 0]
    np.testing.assert_allclose(model.predict(activations, NO_LINEAR, dense), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.medium
@pytest.mark.parametrize(
    "options",
    [
        *({"tower_modules": one} for one in (HALF, SHAPED, FLAT, MIXED)),
        {"tower_modules": HALF, "network": "dcn"},
    ],
)
@pytest.mark.parametrize("inputs", [IDS, [*IDS, *NUMBERS]])
def test_gradients_are_those_of_the_loss_and_steps_lower_it(options, inputs):
    model = model_of(inputs, **options, dense_learning_rate=0.05)
    activations, dense, labels = batch_for(inputs, seed=3)
    ones = np.ones(6, np.float32)
    numeric = np.zeros_like(activations)
    for at in np.ndindex(activations.shape):
        up, down = activations.copy(), activations.copy()
        up[at] += 1e-3
        down[at] -= 1e-3
        ends = [mean_loss(model, moved, dense, labels, ones) for moved in (up, down)]
        numeric[at] = (ends[0] - ends[1]) / (up[at] - down[at])
    before = mean_loss(model, activations, dense, labels, ones)
    _, gradients, _ = model.step(activations, NO_LINEAR, dense, labels, ones)
    np.testing.assert_allclose(gradients, numeric, atol=3e-3)
    for _ in range(30):
        model.step(activations, NO_LINEAR, dense, labels, ones)
    assert mean_loss(model, activations, dense, labels, ones) < before


@pytest.mark.parametrize(
    ("options", "others", "expected", "compression"),
    [
        (HALF, {}, [(2, 0, 4), (1, 0, 2)], 2),
        ({"towers": TOWERS, "compression": 4}, {}, [(2, 0, 2), (1, 0, 1)], 4),
        ({"towers": TOWERS}, {}, [(2, 0, 4), (1, 0, 2)], 2),
        (MIXED, {}, [(1, 1, 4), (1, 1, 4)], 1.5),
        (SHAPED, {}, [(2, 1, 6), (1, 1, 4)], 1.2),
        (FLAT, {}, [(0, 1, 4), (0, 1, 4)], 1.5),
        ({"towers": TOWERS}, {"network": "dcn"}, [(0, 0, 4), (0, 0, 4)], 1.5),
        ({"towers": TOWERS, "width": 3}, {"network": "dcn"}, [(0, 0, 3), (0, 0, 3)], 2),
        ({"towers": TOWERS, "width": 6}, {"network": "dcn"}, [(0, 0, 6), (0, 0, 4)], 1.2),
        (HALF, {"network": "dcn"}, [(0, 0, 4), (0, 0, 2)], 2),
        ({"towers": TOWERS, "compression": 3}, {"network": "dcn"}, [(0, 0, 3), (0, 0, 1)], 3),
        (HALF, {"dims": {"b": 8}}, [(2, 0, 4), (1, 0, 2)], 16 / 6),
    ],
)
def test_shapes_follow_from_the_options(options, others, expected, compression):
    shapes = shapes_of(options, **others)
    assert [(one.combinations, one.projections, one.width) for one in shapes.towers] == expected
    assert shapes.compression == pytest.approx(compression)


@pytest.mark.parametrize(
    ("options", "others", "message"),
    [
        ({"towers": [["a"], ["b"], ["c"], ["d"]], "compression": 2}, {}, "the number of towers must be at most"),
        ({"towers": [["a"], ["b"]], "compression": 2}, {}, "each feature of ids must be in a tower"),
        ({"towers": [["a", "b", "c", "x"]], "compression": 2}, {}, "a tower must name features of ids"),
        (HALF, {"tables": {"a": "t", "b": "t"}}, "features that share a table must be in one tower"),
        ({"towers": TOWERS, "compression": 8}, {}, "compression must divide the dim of the model"),
        ({"towers": TOWERS, "compression": 3}, {}, "compression must divide the dim of the model"),
        ({"towers": TOWERS, "compression": 5}, {"network": "dcn"}, "a tower must have at least as many columns as compression"),
        ({"towers": TOWERS, "dim": 2}, {"network": "dcn"}, "tower_modules of dcn must have its own shape"),
        ({"towers": TOWERS, "width": 2}, {}, "tower_modules of dlrm must have its own shape"),
        ({"towers": TOWERS, "compression": 2, "rank": 2}, {}, "tower_modules of dlrm must have its own shape"),
        ({"towers": TOWERS, "dim": 4, "projections": 1}, {}, "the outputs of a tower must be at most as wide as its inputs"),
        ({"towers": TOWERS, "dim": 5}, {}, "must be at most that of the model"),
        (HALF, {"network": "some.module:build"}, "tower_modules needs a network with tower modules"),
    ],
)  # fmt: skip
def test_towers_that_do_not_fit_are_refused_where_inputs_are_laid_out(options, others, message):
    with pytest.raises(ConfigError, match=message):
        lay_out([*IDS, *NUMBERS], config("run", tower_modules=options, **others))


@settings(max_examples=scaled(200))
@given(
    st.lists(st.sets(st.sampled_from("abcd"), min_size=1), min_size=1, max_size=4),
    st.floats(1, 40) | st.integers(1, 16),
    st.sampled_from(["dlrm", "dcn"]),
    st.integers(1, 24),
)
def test_modules_compress_or_are_refused(towers, compression, network, dim):
    inputs = [TypedInput(name, Dense(DType.INT64, 10)) for name in "abcd"]
    options = config("run", tower_modules={"towers": [sorted(one) for one in towers], "compression": compression}, network=network, dim=dim) if len(
        {name for one in towers for name in one}) == sum(map(len, towers)) else None  # fmt: skip
    if options is None:
        event("a name twice")
        return
    try:
        layout = lay_out(inputs, options)
    except ConfigError:
        event("refused")
        return
    shapes = tower_shapes(layout.features, options)
    assert sum(one.columns for one in shapes.towers) == 4 * dim
    assert all(1 <= one.width <= one.columns for one in shapes.towers)
    if network == "dlrm":
        assert shapes.compression == pytest.approx(compression)


def test_a_linear_model_has_no_modules():
    assert shapes_of(HALF, deep=False, linear=True) is None
    model = model_of([*IDS, *NUMBERS], deep=False, linear=True, tower_modules=HALF)
    assert len(weights_of(model)) == 2


def test_a_tower_that_passes_its_input_on_has_no_weights_on_its_hosts():
    options = config("run", tower_modules=FLAT, batch_rows=6)
    tower = DenseModel(lay_out(IDS, options), options, takes_outputs=True).tower_module(1)
    inputs, by_outputs = np.arange(24, dtype=np.float32).reshape(6, 4), np.ones((6, 4), np.float32)
    by_inputs, by_weights = tower.gradients(inputs, by_outputs)
    assert tower.outputs(inputs).tobytes() == inputs.tobytes()
    assert by_inputs.tobytes() == by_outputs.tobytes()
    assert by_weights.shape == tower.weights.shape == (0,)
    tower.apply(by_weights)
    assert tower.variables == []


def test_a_module_has_the_rate_of_its_step():
    """It is updated together with the tables, some steps after the dense part if there is staleness."""
    schedule = {"warmup_steps": 4}
    options = config(
        "run", tower_modules=HALF, dense_optimizer="sgd", dense_learning_rate=0.1, learning_rate_schedule=schedule
    )
    layout = lay_out(IDS, options)
    tower = DenseModel(layout, options, takes_outputs=True).tower_module(0)
    layout.clock.begin(0)
    for step in range(6):
        before = tower.weights
        tower.apply(np.ones_like(before))
        np.testing.assert_allclose(before - tower.weights, 0.1 * min(step + 1, 4) / 4, rtol=1e-4)
        layout.clock.count_tables()


@pytest.mark.medium
@pytest.mark.parametrize("network", ["dlrm", "dcn"])
def test_a_module_of_one_tower_starts_and_trains_as_that_of_the_model(network):
    options = config(
        "run", tower_modules=HALF, network=network, dense_optimizer="adam", dense_learning_rate=0.1, batch_rows=6
    )
    layout = lay_out(IDS, options)
    above, model = DenseModel(layout, options, takes_outputs=True), DenseModel(layout, options)
    towers = [above.tower_module(t) for t in range(2)]
    own = np.concatenate([one.weights for one in towers])
    flat = np.concatenate([one.ravel() for one in weights_of(model)]).astype(np.float32)
    assert own.tobytes() == flat[: len(own)].tobytes()
    activations, _, labels = batch_for(IDS)
    a, b, c = np.split(activations, 3, axis=1)
    inputs, dense = (np.concatenate([a, c], axis=1), b), np.zeros((6, 0), np.float32)
    numbers = [one.outputs(part) for one, part in zip(towers, inputs, strict=True)]
    assert [one.shape for one in numbers] == [(6, one.width) for one in towers]
    # The loss's gradients by a module's outputs are those that give the model's gradients by its inputs.
    _, by_activations, _, by_weights = model.gradients(activations, NO_LINEAR, dense, labels, np.ones(6, np.float32))
    for t, part in enumerate(inputs):
        first, last = sum(len(one.weights) for one in towers[:t]), sum(len(one.weights) for one in towers[: t + 1])
        columns = np.r_[0:4, 8:12] if t == 0 else np.r_[4:8]
        jacobian = np.stack(
            [
                towers[t].gradients(part, one)[0]
                for one in np.eye(6 * towers[t].width, dtype=np.float32).reshape(-1, 6, towers[t].width)
            ]
        )
        solved, *_ = np.linalg.lstsq(
            jacobian.reshape(len(jacobian), -1).T, by_activations[:, columns].ravel(), rcond=None
        )
        found, own = towers[t].gradients(part, solved.astype(np.float32).reshape(6, -1))
        np.testing.assert_allclose(found, by_activations[:, columns], atol=1e-4)
        np.testing.assert_allclose(own, by_weights[first:last], atol=1e-3)
    model.apply(by_weights)
    for t, one in enumerate(towers):
        first, last = sum(len(each.weights) for each in towers[:t]), sum(len(each.weights) for each in towers[: t + 1])
        one.apply(by_weights[first:last])
        after = np.concatenate([array.ravel() for array in weights_of(model)])[first:last]
        np.testing.assert_allclose(one.weights, after, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [({}, "needs the option tower_modules"), ({"dims": {"b": 8}}, "must have the dim of the model")],
)
def test_a_module_on_its_hosts_is_one_of_the_model(options, message):
    made = config("run", **options, tower_modules=HALF if options else None)
    with pytest.raises(ConfigError, match=message):
        DenseModel(lay_out(IDS, made), made, takes_outputs=True).tower_module(0)


@pytest.mark.medium
@pytest.mark.parametrize("network", ["dlrm", "dcn"])
def test_a_run_with_towers_resumes_bit_for_bit_and_predicts(tmp_path, network):
    data, options = (
        Synthetic(3, 200),
        {"tower_modules": {"towers": [["words"], ["user"]], "compression": 2}, "network": network},
    )
    whole = train(data.solution, data.read, config(tmp_path / "whole", **options))
    stopped = train(data.solution, data.read, config(tmp_path / "run", **options), stop=lambda: True)
    resumed = train(data.solution, data.read, config(tmp_path / "run", **options))
    assert (stopped.finished, resumed.finished, resumed.resumed_from) == (False, True, stopped.checkpoint)
    one, other = (load_trained(str(tmp_path / name)) for name in ("whole", "run"))
    fragment = data.solution.partitions[0].fragments[0]
    predictions = one.predict(data.tables[fragment.path])
    assert predictions.tobytes() == other.predict(data.tables[fragment.path]).tobytes()
    assert whole.final == resumed.final
    with pytest.raises(RunMismatch, match="tower_modules"):
        train(data.solution, data.read, config(tmp_path / "run", network=network))
