"""A DLRM's whole training step, through the tpu engine, compiled by the real TPU compiler for slices that nobody pays for."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from tests.trainer.tpu_check.models import dlrm
from trainer.model.heads import BINARY, Head
from trainer.model.task_heads import TaskHeads
from trainer.options.topology import Topology
from trainer.tables.sparse_core import SparseCoreSettings
from trainer.tpu_check.check import Arrays, SliceCheck, check_slice
from trainer.tpu_check.environment import TpuEnvironment
from transforms.types import Dense, DType

pytestmark = pytest.mark.tpu_aot

EVENTS = 1024


def checked(name: str, environment: TpuEnvironment, **model) -> SliceCheck:
    return check_slice(dlrm(events=EVENTS, **model), Topology.parse(name), environment)


@cache
def large(name: str, environment: TpuEnvironment) -> SliceCheck:
    """A model whose tables are most of its memory."""
    return checked(name, environment, rows=4_000_000)


@cache
def three_inputs(environment: TpuEnvironment) -> SliceCheck:
    """A model whose tables are two stacks, in both parts."""
    return checked("v5p:2x2x1", environment, inputs=3)


def table_bytes(found: SliceCheck) -> int:
    return sum(stack.device_bytes for stack in found.stacks)


@pytest.mark.parametrize("name", ["v5p:2x2x1", "v5p:4x4x4", "v6e:2x2", "tpu7x:2x2x1"])
def test_a_training_step_compiles(name: str, tpu_environment: TpuEnvironment) -> None:
    found = large(name, tpu_environment)
    assert found.problem is None
    assert found.step is not None
    assert found.events == EVENTS * found.devices.count
    assert table_bytes(found) + found.dense_bytes < found.step.needed_bytes < found.devices.hbm_bytes
    # ids and rows of two stacks are exchanged forward and backward, and the gradients of the dense weights are summed
    assert found.step.collectives["all-to-all"] >= 4
    assert found.step.collectives.get("all-reduce", 0) + found.step.collectives.get("reduce-scatter", 0) > 0
    assert found.step.flops > 0
    assert found.step.accessed_bytes > 0
    if name == "v5p:4x4x4":
        few = large("v5p:2x2x1", tpu_environment)
        assert few.step is not None
        assert table_bytes(few) == pytest.approx(16 * table_bytes(found), rel=0.01)
        saved = few.step.needed_bytes - found.step.needed_bytes
        assert saved == pytest.approx(table_bytes(few) - table_bytes(found), rel=0.05), "a step copies no table"


def test_the_stacks_of_a_plan_compile(tpu_environment: TpuEnvironment) -> None:
    """TensorFlow's rule has one stack of the deep part's tables: the layouts of a plan take its place, also in the lowered program."""
    settings = SparseCoreSettings(stacks=(("f0", "f2"), ("f1",)))
    found = checked("v5p:2x2x1", tpu_environment, inputs=3, settings=settings)
    assert [stack.name for stack in found.stacks] == ["f0_f2", "f1", "linear/f0_linear/f1_linear/f2"]
    assert found.problem is None
    assert found.step is not None
    alone = three_inputs(tpu_environment)
    assert alone.step is not None
    assert found.step.collectives["all-to-all"] > alone.step.collectives["all-to-all"]


def test_replicated_tables_compile(tpu_environment: TpuEnvironment) -> None:
    """A copy on each device, read by a gather, beside a table that is spread."""
    model = dlrm(events=EVENTS, inputs=3, rows=500)
    few = [replace(one, type=Dense(DType.INT64, 500)) if one.name != "f2" else one for one in model.inputs[:3]]
    whole = {"f0": 1, "f1": 1, "linear/f0": 1, "linear/f1": 1}
    model = replace(model, inputs=(*few, *model.inputs[3:]), settings=SparseCoreSettings(replicated=whole))
    found = check_slice(model, Topology.parse("v5p:2x2x1"), tpu_environment)
    assert found.problem is None
    assert found.step is not None
    stacks = {stack.name: stack for stack in found.stacks}
    assert {stack for stack, one in stacks.items() if one.is_replicated} == set(whole)
    assert stacks["f0"].device_bytes == 500 * model.config.dim * 2 * 4, "all rows, and their accumulators"
    spread = three_inputs(tpu_environment).step
    assert spread is not None
    assert found.step.gathers == spread.gathers + len(whole), (
        "SparseCores' programs have those of a stack, however many tables it has"
    )
    assert found.step.host_calls == 0
    assert found.step.collectives["all-to-all"] > 0


@pytest.mark.parametrize(
    ("name", "sides", "optimizer"), [("v6e:16x16", (16, 16), "adam"), ("v5p:2x2x1", (2, 2), "lamb")]
)
def test_a_dense_update_in_segments_has_the_bytes_of_the_formula(
    name: str, sides: tuple[int, int], optimizer: str, tpu_environment: TpuEnvironment
) -> None:
    """An MLP of more than 32 MiB: gradients are scattered along Y and X and weights gathered back, and slots are those of a segment.

    On the large slice without tables, which take the compiler minutes there.
    """
    model = dlrm(events=256, inputs=2, top_mlp=(3072, 3072, 64), dense_optimizer=optimizer)
    found = check_slice(replace(model, is_served=sides == (16, 16)), Topology.parse(name), tpu_environment)
    assert found.problem is None
    step, devices = found.step, found.devices.count
    assert step is not None
    assert [(one.name, one.axis, one.devices) for one in step.legs] == [
        ("reduce-scatter", "Y", sides[0]), ("reduce-scatter", "X", sides[1]), ("all-gather", "X", sides[1]), ("all-gather", "Y", sides[0]),
    ]  # fmt: skip
    assert [one.compiled_bytes for one in step.legs] == [one.bytes for one in step.legs]
    assert step.legs[1].bytes == step.legs[0].bytes // sides[0], "X has 1/Y of the bytes"
    weights = step.legs[0].bytes
    assert weights > 32 << 20
    assert found.dense_bytes == pytest.approx(weights * (1 + 2 / devices), rel=0.01), "both slots of a segment"
    assert step.collectives["reduce-scatter"] == 2
    assert step.host_calls == 0


@pytest.mark.parametrize(
    "model",
    [
        {"network": "dcn", "cross_rank": 16, "dense_optimizer": "adagrad"},
        {"head": TaskHeads((("click", BINARY), ("amount", Head("regression")))), "task_mlp": (16,), "network": "dcn",
         "cross_structure": "parallel"},
        {"head": TaskHeads((("click", BINARY), ("conversion", BINARY))), "task_weights": {"conversion": 2.0}},
    ],
    ids=["dcn", "dcn, two tasks", "dlrm, two labels"],
)  # fmt: skip
def test_other_networks_and_several_labels_compile(model: dict, tpu_environment: TpuEnvironment) -> None:
    found = checked("v6e:2x2", tpu_environment, **model)
    assert found.problem is None
    assert found.step is not None
    assert found.step.needed_bytes < found.devices.hbm_bytes
    assert found.step.collectives["all-to-all"] >= 4


def test_tables_beyond_the_hbm_are_a_clear_error(tpu_environment: TpuEnvironment) -> None:
    found = checked("v5p:2x2x1", tpu_environment, inputs=8, rows=300_000_000)
    assert found.step is None
    assert found.problem is not None
    assert found.problem.kind == "hbm"
    assert found.problem.needed_bytes > found.problem.available_bytes > 90e9
    assert "check v5p:2x2x2" in found.problem.next_step


def test_buffers_beyond_a_sparse_cores_memory_are_a_clear_error(tpu_environment: TpuEnvironment) -> None:
    limits = {"f0_f1": 65536}
    found = checked(
        "v5p:2x2x1", tpu_environment, inputs=2, linear=False, settings=SparseCoreSettings(max_ids_per_table=limits, max_unique_ids_per_table=limits)
    )  # fmt: skip
    assert found.step is None
    assert found.problem is not None
    assert found.problem.kind == "sparse_core_memory"
    assert found.problem.needed_bytes > found.problem.available_bytes > 0
    assert "stack f0_f1" in found.problem.next_step


@pytest.mark.parametrize("name", ["v5p:2x2x1", "v6e:2x2"])
def test_the_dense_part_over_servers_has_one_array_each_way(name: str, tpu_environment: TpuEnvironment) -> None:
    """8 tables of 16 columns and their linear part, 5 dense numbers, a label and a weight; out gradients, a logit, and hidden units."""
    found = check_slice(replace(dlrm(events=EVENTS), is_served=True), Topology.parse(name), tpu_environment)
    assert (found.problem, found.stacks) == (None, ())
    step = found.step
    assert step is not None
    activations = 8 * 16 + 8
    assert step.entering == Arrays(1, EVENTS * (activations + 5 + 1 + 1) * 4)
    assert step.leaving.count == 1
    units = step.leaving.bytes // 4 - EVENTS * (activations + 1)
    assert 0 < units < 1000, "the hidden units are counted"
    assert (step.host_calls, step.gathers) == (0, 0), "the interaction of features gathers nothing"
    assert set(step.collectives) == {"all-reduce"}
    assert 0 < step.collective_bytes < 2 * found.dense_bytes, "gradients alone are summed"
    assert found.dense_bytes < step.needed_bytes < found.devices.hbm_bytes
