"""The documents of a server's tables: round trips, digests, and one error for every other document."""

from __future__ import annotations

import copy
import dataclasses
import json
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.mutations import mutated
from tests.support.examples import scaled
from trainer.errors import ConfigError
from trainer.options.pruning import RESETS, PruningOptions
from trainer.planning.row_groups import RowGroup
from trainer.servers.held_rows import HeldRows
from trainer.tables import FTRL, SGD, Adagrad, AdagradMomentum, Adam, TableSpec
from trainer.tables.kernels.layout import TableOrigin
from trainer.tables.optimizers import RowWiseAdagrad
from trainer.tables.routes.servers.row_messages import RowNumbers
from trainer.tables.routes.servers.table_documents import HeldTables, held_pruning, held_tables, read_held_tables
from trainer.tables.spec import Constant, Normal, Quantization, Uniform
from trainer.tables.stores.hashed.limits import TableLimits
from transforms.errors import DataError

OPTIMIZERS = [
    SGD(0.5, clip_weight_min=-1.0, clip_weight_max=1.0),
    Adagrad(0.1, 0.25, weight_decay_factor=0.01, multiply_weight_decay_factor_by_learning_rate=True),
    RowWiseAdagrad(0.1, 0.5, 1e-3),
    AdagradMomentum(0.1, 0.9, use_nesterov=True, exponent=3.0),
    Adam(0.1, 0.8, 0.99, sum_inside_sqrt=False),
    FTRL(0.1, -0.4, l1_regularization_strength=0.1, multiply_linear_by_learning_rate=True, beta=0.5),
]
INITIALIZERS = [None, Constant(0.5), Uniform(-1.0, 1.0), Normal(0.0, 0.5, False), Normal(1.0, 2.0)]


@st.composite
def helds(draw):
    tables = []
    for t in range(draw(st.integers(1, 4))):
        table = TableSpec(
            f"table {t}{draw(st.sampled_from(['', '/0', 'é']))}",
            draw(st.integers(1, 1 << 40)),
            draw(st.integers(1, 64)),
            draw(st.sampled_from(OPTIMIZERS)),
            "mean",
            draw(st.sampled_from(INITIALIZERS)),
            draw(st.sampled_from([None, Quantization(4, -1.0, 1.0)])),
        )
        tables.append((table, TableOrigin(table.name, draw(st.integers(1, 9)), draw(st.integers(0, 8)), draw(st.integers(0, 9)))))  # fmt: skip
    seed = draw(st.integers(0, (1 << 63) - 1))
    if not draw(st.booleans()):
        return held_tables(tables, seed)
    options = PruningOptions(0.5, reset=draw(st.sampled_from(RESETS)), round_steps=draw(st.integers(0, 3)))
    groups = [RowGroup((t,), draw(st.integers(1, min(9, tables[t][0].vocabulary_size))))
              for t in draw(st.permutations(range(len(tables))))]  # fmt: skip
    return held_tables(tables, seed, None, held_pruning(options, groups))


@given(helds())
def test_tables_are_read_as_they_were_written(held):
    found = read_held_tables(json.loads(json.dumps(held.to_document())))
    assert found.saved_parts is found.saved_parts
    assert found == held
    assert found.digest == held.digest
    assert found.saved_parts == held.saved_parts


@given(helds(), helds())
def test_digests_are_equal_only_if_tables_are(one, other):
    assert (one.digest == other.digest) == (one == other)


def one_table(**changes) -> TableSpec:
    return dataclasses.replace(TableSpec("one", 10, 4, Adagrad(0.1, 0.25), "sum", Uniform(-1.0, 1.0)), **changes)


def held_of(spec: TableSpec, seed=3, **origin) -> HeldTables:
    return held_tables([(spec, dataclasses.replace(TableOrigin("one"), **origin))], seed)


@pytest.mark.parametrize(
    "same",
    [
        one_table(combiner="mean"),
        one_table(quantization=Quantization(4, -1.0, 1.0)),
        one_table(optimizer=Adagrad(0.7, 0.25)),
        one_table(optimizer=Adagrad(lambda: 0.5, 0.25)),
    ],
)
def test_what_a_server_does_not_use_is_not_in_the_digest(same):
    assert held_of(same).digest == held_of(one_table()).digest


@pytest.mark.parametrize(
    "other",
    [
        held_of(one_table(name="two")),
        held_of(one_table(vocabulary_size=11)),
        held_of(one_table(dim=5)),
        held_of(one_table(optimizer=Adagrad(0.1, 0.5))),
        held_of(one_table(optimizer=SGD(0.1))),
        held_of(one_table(initializer=Uniform(-1.0, 0.5))),
        held_of(one_table(initializer=None)),
        held_of(one_table(), seed=4),
        held_of(one_table(), table="two"),
        held_of(one_table(), row_stride=2),
        held_of(one_table(), row_first=1),
        held_of(one_table(), first_column=1),
    ],
)
def test_what_a_server_uses_is_in_the_digest(other):
    assert other.digest != held_of(one_table()).digest
    assert read_held_tables(other.to_document()) == other


LIMITS = TableLimits(20, 2, 100, 16, 50)


def hashed(spec: TableSpec, limits: TableLimits = LIMITS) -> HeldTables:
    return held_tables([(spec, TableOrigin("one"))], 3, {spec.name: limits})


@pytest.mark.parametrize("name", [one.name for one in dataclasses.fields(TableLimits)])
def test_the_limits_of_a_hashed_table_are_in_the_document(name):
    table = one_table(vocabulary_size=2**63 - 1)
    other = hashed(table, dataclasses.replace(LIMITS, **{name: getattr(LIMITS, name) + 1}))
    assert len({other.digest, hashed(table).digest, held_of(table).digest}) == 3
    assert read_held_tables(json.loads(json.dumps(other.to_document()))) == other


@pytest.mark.parametrize(
    "changes",
    [{"capacity": 0}, {"capacity": True}, {"capacity": 1 << 31}, {"admit_after": 0}, {"admit_after": 256}, {"admit_after": 1.0},
     {"expire_after_steps": -1}, {"candidates": -1}, {"candidate_steps": 0}, {"candidate_steps": 1 << 24}, {"more": 1}],
)  # fmt: skip
def test_limits_of_a_document_are_refused(changes):
    document = hashed(one_table()).to_document()
    document["tables"][0]["hashed"] |= changes
    with pytest.raises(DataError):
        read_held_tables(document)


@pytest.mark.parametrize(
    "changes",
    [{"options": {"metric": "age"}}, {"options": {"groups": [{"tables": ["one"]}]}}, {"options": []}, {"groups": None}, {"groups": []},
     {"groups": [{"tables": [0]}]}, {"groups": [{"tables": [1], "rows": 3}]}, {"groups": [{"tables": [], "rows": 3}]},
     {"groups": [{"tables": [0, 0], "rows": 3}]}, {"groups": [{"tables": [0], "rows": 0}]}, {"groups": [{"tables": [0], "rows": True}]},
     {"groups": [{"tables": [0], "rows": 1 << 31}]}, {"groups": [{"tables": [0], "rows": 11}]}, {"groups": [{"tables": [0], "rows": 3}] * 2}, {"more": 1}],
)  # fmt: skip
def test_the_pruning_of_a_document_is_refused(changes):
    held = held_of(one_table())
    pruned = dataclasses.replace(held, pruning=held_pruning(PruningOptions(), [RowGroup((0,), 3)]))
    assert read_held_tables(json.loads(json.dumps(pruned.to_document()))) == pruned
    assert pruned.digest != held.digest
    document = pruned.to_document()
    document["pruning"] |= changes
    with pytest.raises(DataError):
        read_held_tables(document)


def test_the_groups_of_a_document_have_all_tables_that_are_not_hashed():
    tables = [(one_table(name=name), TableOrigin(name)) for name in ("one", "two", "three")]

    def document(*groups):
        limits = {"two": TableLimits(5)}
        return held_tables(tables, 3, limits, held_pruning(PruningOptions(), groups))

    mixed = document(RowGroup((0, 2), 3))
    found = read_held_tables(json.loads(json.dumps(mixed.to_document())))
    assert found == mixed
    assert found.most_rows == 5 + 3
    parts = [(one.table, one.section) for one in found.saved_parts]
    assert parts == [(0, ""), (1, ""), (2, ""), (0, "importance"), (2, "importance")]
    for groups in ((RowGroup((0,), 3),), (RowGroup((0, 1, 2), 3),), (RowGroup((0,), 3), RowGroup((1, 2), 3)), ()):
        with pytest.raises(DataError, match="must be in one group"):
            read_held_tables(document(*groups).to_document())


def test_tables_of_several_kinds_are_in_several_groups():
    tables = [(one_table(name=name, dim=dim), TableOrigin(name)) for name, dim in (("one", 4), ("two", 5))]
    document = held_tables(tables, 3, None, held_pruning(PruningOptions(), [RowGroup((0, 1), 3)])).to_document()
    with pytest.raises(DataError, match="one width and optimizer"):
        read_held_tables(document)


@pytest.mark.parametrize("limits", [None, [], {}, {"capacity": 9}])
def test_limits_must_have_their_members(limits):
    document = held_of(one_table()).to_document()
    document["tables"][0]["hashed"] = limits
    with pytest.raises(DataError):
        read_held_tables(document)


def changed(path: tuple, value: object) -> dict:
    document = copy.deepcopy(held_of(one_table()).to_document())
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return document


TABLE = ("tables", 0)


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"seed": 3},
        changed(("more",), 1),
        changed(("seed",), -1),
        changed(("seed",), True),
        changed(("seed",), 1 << 63),
        changed(("tables",), []),
        changed(("tables",), {}),
        changed(TABLE, None),
        changed((*TABLE, "more"), 1),
        changed((*TABLE, "name"), ""),
        changed((*TABLE, "name"), 7),
        changed((*TABLE, "name"), "\ud800"),
        changed((*TABLE, "rows"), 0),
        changed((*TABLE, "rows"), True),
        changed((*TABLE, "rows"), 1.0),
        changed((*TABLE, "rows"), 1 << 62),
        changed((*TABLE, "rows"), (1 << 62) + 1),
        changed((*TABLE, "dim"), 0),
        changed((*TABLE, "dim"), (1 << 16) + 1),
        changed((*TABLE, "optimizer"), {"type": "Lion"}),
        changed((*TABLE, "optimizer", "type"), "TableSpec"),
        changed((*TABLE, "optimizer", "type"), []),
        changed((*TABLE, "optimizer", "learning_rate"), "0.1"),
        changed((*TABLE, "optimizer", "learning_rate"), None),
        changed((*TABLE, "optimizer", "initial_accumulator"), -1.0),
        changed((*TABLE, "optimizer", "initial_accumulator"), float("nan")),
        changed((*TABLE, "optimizer", "initial_accumulator"), 10**400),
        changed((*TABLE, "optimizer", "use_gradient_accumulation"), 2),
        changed((*TABLE, "initializer", "low"), float("inf")),
        changed((*TABLE, "initializer", "low"), 2.0),
        changed((*TABLE, "initializer", "low"), None),
        changed((*TABLE, "initializer", "low"), True),
        changed((*TABLE, "origin", "table"), "\udfff"),
        changed((*TABLE, "origin", "row_stride"), -1),
        changed((*TABLE, "origin", "row_first"), 1.0),
        changed((*TABLE, "origin", "first_column"), 1 << 62),
        changed(("tables",), [held_of(one_table()).to_document()["tables"][0]] * 2),
    ],
)
def test_a_document_is_refused(document):
    with pytest.raises(DataError):
        read_held_tables(document)


def test_many_tables_of_one_name_are_refused_at_once():
    """Without a comparison of all names with all others."""
    with pytest.raises(DataError, match="different names"):
        read_held_tables(changed(("tables",), held_of(one_table()).to_document()["tables"] * (1 << 14)))


@pytest.mark.parametrize("count", [1, 4, 16, 64])
def test_tables_whose_sizes_wrap_around_are_refused(count):
    """The sizes of all tables together are 2^64 or more bytes: 0 in 64 bits."""
    document = held_of(one_table()).to_document()
    rows = (1 << 62) // count
    document["tables"] = [document["tables"][0] | {"name": str(t), "rows": rows, "dim": 1 << 16} for t in range(count)]
    with pytest.raises(DataError, match="fewer rows"):
        read_held_tables(document)


@pytest.mark.parametrize("kind", ["hashed", "pruned", "mixed"])
def test_a_mutated_document_is_one_error_or_tables_that_can_be_held(kind):
    """Whatever is read can be opened, or is refused: rows are read and updated without a crash."""
    limits, pruning = {} if kind == "pruned" else {"1": TableLimits(5, 2), "4": TableLimits(9)}, None
    if kind != "hashed":
        groups = [RowGroup((k,), 5 + k) for k in range(len(OPTIMIZERS)) if str(k) not in limits]
        pruning = held_pruning(PruningOptions(0.5), groups)
    whole = held_tables(
        [(TableSpec(str(k), 10 + k, 4, one, "sum", INITIALIZERS[k % 5]), TableOrigin(str(k))) for k, one in enumerate(OPTIMIZERS)], 3,
        limits, pruning,
    ).to_document()  # fmt: skip
    whole = json.loads(json.dumps(whole))
    opened = refused = 0
    for seed in range(scaled(3000)):
        try:
            held = read_held_tables(mutated(whole, Random(seed)))
        except DataError:
            refused += 1
            continue
        assert read_held_tables(held.to_document()) == held
        if held.pruning is not None:
            sizes = [sum(held.tables[t].table.vocabulary_size for t in one.tables) for one in held.pruning.groups]
            assert all(1 <= one.rows <= size for one, size in zip(held.pruning.groups, sizes, strict=True))
        if seed % 10:
            continue
        rows = HeldRows(None)
        try:
            rows.open(held, 0)
        except ConfigError:
            continue
        opened += 1
        last = np.array([one.table.vocabulary_size - 1 for one in held.tables], np.int64)
        found = rows.fetch(RowNumbers(last, np.ones(len(last), np.int64)))
        assert len(found) == sum(one.table.dim for one in held.tables)
    assert opened
    assert refused
