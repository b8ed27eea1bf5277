"""Workers of towers compress their outputs before these leave a host, and sum a module's gradients inside its tower."""

from __future__ import annotations

import numpy as np
import pytest

from tests.trainer.synthetic import config
from tests.trainer.tables.routes.towers.grouped_threads import on_workers
from tests.trainer.tables.test_engine import batch_of
from trainer.errors import NonFiniteLoss
from trainer.model.inputs import TypedInput, lay_out
from trainer.tables import CpuEngine
from trainer.tables.routes.towers.placement import TowerPlacement
from trainer.tables.routes.towers.tower_tables import TowerTables
from transforms.types import DType, Ragged

pytest.importorskip("tensorflow")

from trainer.model.dense_model import DenseModel

INPUTS = [TypedInput(name, Ragged(DType.INT64, 20)) for name in "abc"]
TOWERS = (("c", "a"), ("b",))
PLACEMENT = TowerPlacement(3, 2, TOWERS, ((0, 2), (1,)))


def rows_on(rows):
    """The weights of the rows of a worker, by table and row."""
    found = {}
    for p, part in enumerate(rows.parts.parts):
        mine, weights = rows.part_weights_of(p, np.arange(20))
        found |= {
            (part.table.name, int(row)): values for row, values in zip(np.flatnonzero(mine), weights, strict=True)
        }
    return found


#: The second tower, of one input, passes it on: it has no weights.
PASSING = {"dim": 4, "combinations": 0, "projections": 1}


@pytest.mark.medium
@pytest.mark.parametrize(
    ("network", "modules", "widths"),
    [
        ("dlrm", {"compression": 2}, (4, 2)),
        ("dlrm", PASSING, (4, 4)),
        ("dcn", {"compression": 2}, (4, 2)),
        ("dcn", {"width": 3}, (3, 3)),
    ],
)
@pytest.mark.parametrize("is_deterministic", [True, False])
def test_steps_are_those_of_one_process(network, modules, widths, is_deterministic):
    options = config(
        "run",
        tower_modules={"towers": TOWERS, **modules},
        network=network,
        dense_optimizer="sgd",
        dense_learning_rate=0.1,
    )
    layout, random = lay_out(INPUTS, options), np.random.default_rng(4)
    batches = [batch_of([[random.integers(0, 20, 2).tolist() for _ in range(3)] for _ in range(3)]) for _ in range(6)]
    by_outputs = [random.normal(size=(3, sum(widths))).astype(np.float32) for _ in range(6)]

    def work(rank, exchanges, sent):
        t = PLACEMENT.tower_of(PLACEMENT.host_of(rank))
        module = DenseModel(layout, options, takes_outputs=True).tower_module(t)
        tables = TowerTables(layout.features, seed=3, placement=PLACEMENT, rank=rank, exchanges=exchanges, module=module,
                             output_widths=module.widths, threads=1, is_deterministic=is_deterministic)  # fmt: skip
        outputs = tables.lookup(batches[rank])
        before = sent.between_hosts
        tables.apply_gradients(batches[rank], by_outputs[rank])
        with pytest.raises(NonFiniteLoss):
            tables.apply_gradients(batches[rank], by_outputs[rank] * np.float32(np.inf))
        return outputs, module.weights, rows_on(tables.rows), sent.between_hosts - before

    results = on_workers(PLACEMENT, work)
    engine = CpuEngine(layout.features, seed=3)
    model = DenseModel(layout, options, takes_outputs=True)
    trained = [model.tower_module(t) for t in range(2)]
    columns = (np.r_[0:4, 8:12], np.r_[4:8])
    whole, weights = [], [np.zeros(len(one.weights), np.float32) for one in trained]
    for batch, gradient, (outputs, _, _, _) in zip(batches, by_outputs, results, strict=True):
        activations = engine.lookup(batch)
        expected = [module.outputs(activations[:, own]) for module, own in zip(trained, columns, strict=True)]
        np.testing.assert_allclose(outputs, np.concatenate(expected, axis=1), rtol=1e-5, atol=1e-7)
        by_activations = np.empty_like(activations)
        for t, (module, own, part) in enumerate(
            zip(trained, columns, np.split(gradient, [widths[0]], axis=1), strict=True)
        ):
            by_activations[:, own], by_weights = module.gradients(activations[:, own], part)
            weights[t] += by_weights
        whole.append(by_activations)
    joined = batch_of(
        [
            [batch.ids[batch.offsets[f, k] : batch.offsets[f, k + 1]].tolist() for batch in batches for k in range(3)]
            for f in range(3)
        ]
    )
    engine.apply_gradients(joined, np.concatenate(whole))
    for t, module in enumerate(trained):
        module.apply(weights[t])
        own = [results[rank][1] for rank in PLACEMENT.group_of(t)]
        assert len({one.tobytes() for one in own}) == 1, "the workers of a tower have equal modules"
        np.testing.assert_allclose(own[0], module.weights, rtol=1e-4, atol=1e-6)
    found = {name: values for _, _, tables, _ in results for name, values in tables.items()}
    for name in "abc":
        whole_table = engine.weights_of(name, np.arange(20))
        for (table, row), values in found.items():
            if table == name:
                np.testing.assert_allclose(values, whole_table[row], rtol=1e-3, atol=1e-5)
    assert len(found) == 60
    # Gradients of outputs go to the peer in each tower of another host; those of weights do not leave a tower, whose hosts are 0 and 2.
    assert results[2][3] == 4 * 3 * widths[0]
