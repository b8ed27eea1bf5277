from __future__ import annotations

import json

import pytest

from tests.trainer.tpu_check.models import dlrm
from trainer.errors import ConfigError
from trainer.model.heads import Head
from trainer.model.task_heads import TaskHeads
from trainer.options.topology import Topology
from trainer.tables.sparse_core import SparseCoreSettings
from trainer.tpu_check.checked_model import CheckedModel
from trainer.tpu_check.devices import devices_of, smallest_slice
from trainer.tpu_check.stacks import stacks_of

tf = pytest.importorskip("tensorflow")


def test_a_model_survives_its_document():
    model = dlrm(settings=SparseCoreSettings(max_ids_per_table={"a": 3}), dims={"f1": 32}, top_mlp=(8,))
    again = CheckedModel.from_document(json.loads(json.dumps(model.to_document())))
    assert again.to_document() == model.to_document()
    assert again.features == model.features
    assert again.layout == model.layout


def test_a_model_of_several_labels_survives_its_document():
    heads = TaskHeads((("click", Head()), ("spend", Head("regression"))))
    again = CheckedModel.from_document(json.loads(json.dumps(dlrm(head=heads).to_document())))
    assert again.head == heads


def test_the_linear_part_has_tables_of_its_own():
    names = [feature.table.name for feature in dlrm(inputs=2).features]
    assert names == ["f0", "f1", "linear/f0", "linear/f1"]
    assert [feature.table.name for feature in dlrm(inputs=2, linear=False).features] == ["f0", "f1"]


def test_stacks_hold_all_tables_and_their_bytes():
    devices = devices_of(Topology.parse("v5p:2x2x1"))
    deep, linear = stacks_of(dlrm(inputs=3, rows=1000), devices)
    assert deep.name == "f0_f1_f2"
    assert [(table.name, table.rows, table.dim) for table in deep.tables] == [
        ("f0", 1000, 16),
        ("f1", 1000, 16),
        ("f2", 1000, 16),
    ]
    assert (deep.optimizer, deep.slots) == ("Adagrad", 1)
    rows = sum(table.padded_rows for table in deep.tables)
    assert deep.device_rows * devices.count == rows >= 3000
    assert deep.device_bytes * devices.count == rows * 16 * 4 * 2
    assert linear.device_bytes * devices.count == rows * 8 * 4 * 2, "one column is padded to eight"
    assert (deep.max_ids, deep.max_unique_ids) == (256, 256)


def test_events_that_cannot_be_divided_are_refused():
    with pytest.raises(ConfigError, match="multiple of its SparseCores"):
        stacks_of(dlrm(events=6), devices_of(Topology.parse("v5p:2x2x1")))


@pytest.mark.parametrize(
    ("name", "count", "hosts", "sparse_cores", "gib"),
    [("v5p:2x2x1", 4, 1, 4, 95), ("v5p:4x4x4", 64, 16, 4, 95), ("v6e:2x2", 4, 1, 2, 32), ("tpu7x:2x2x1", 8, 1, 2, 96)],
)
def test_a_device_is_a_chip_or_a_core(name, count, hosts, sparse_cores, gib):
    devices = devices_of(Topology.parse(name))
    assert (devices.count, devices.hosts, devices.sparse_cores) == (count, hosts, sparse_cores)
    assert devices.hbm_bytes == gib << 30


@pytest.mark.parametrize("name", ["v4:2x2x1", "v5e:2x2"])
def test_slices_without_such_sparse_cores_are_refused(name):
    with pytest.raises(ConfigError, match="SparseCores that TPUEmbeddingV2 programs") as caught:
        devices_of(Topology.parse(name))
    assert caught.value.value == name


@pytest.mark.parametrize(
    ("name", "chips", "expected"),
    [("v5p:2x2x1", 5, "v5p:2x2x2"), ("v5p:2x2x1", 65, "v5p:4x4x8"), ("v6e:2x2", 200, "v6e:16x16"), ("v6e:2x2", 300, "")],
)  # fmt: skip
def test_the_smallest_slice_that_is_large_enough(name, chips, expected):
    assert smallest_slice(Topology.parse(name), chips) == expected
