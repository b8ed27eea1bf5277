"""The documents of a worker's tables: round trips, and one error for every other document."""

from __future__ import annotations

import copy
import dataclasses
import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.mutations import mutated
from tests.support.examples import scaled
from tests.trainer.tables.routes.servers.random_batches import FEATURES
from tests.trainer.tables.routes.servers.test_table_documents import INITIALIZERS, OPTIMIZERS
from trainer.options.pruning import GroupOptions, PruningOptions
from trainer.tables import SGD, FeatureSpec, TableSpec
from trainer.tables.routes.servers.named_servers import MOST_SERVERS, NamedServers
from trainer.tables.routes.servers.stacked_plan import stacked_plan, width_order
from trainer.tables.routes.workers.table_documents import MEMBERS, WorkerTables
from trainer.tables.spec import COMBINERS, Quantization, tables_of
from trainer.tables.stores.hashed.limits import TableLimits
from trainer.tables.wire.settings import IDS, VALUES, WireSettings
from trainer.wire.flight.addresses import Address
from transforms.errors import DataError


@st.composite
def worker_tables(draw):
    tables = [
        TableSpec(
            f"table {t}",
            draw(st.integers(1, 1 << 40)),
            draw(st.integers(1, 64)),
            dataclasses.replace(
                draw(st.sampled_from(OPTIMIZERS)), learning_rate=draw(st.sampled_from([0.1, 0.2, abs]))
            ),
            draw(st.sampled_from(COMBINERS)),
            draw(st.sampled_from(INITIALIZERS)),
            draw(st.sampled_from([None, Quantization(4, -1.0, 1.0)])),
        )
        for t in range(draw(st.integers(1, 4)))
    ]
    features = [FeatureSpec(f"f{t}", table, draw(st.sampled_from([0, 0, 3]))) for t, table in enumerate(tables)]
    features += [FeatureSpec("again", tables[0])] * draw(st.integers(0, 1))
    hashed = draw(
        st.dictionaries(
            st.sampled_from([one.name for one in tables]), st.builds(TableLimits, st.integers(1, 99)), max_size=1
        )
    )
    plan = None if hashed else draw(st.sampled_from([None, stacked_plan(tables, 3)]))
    return WorkerTables(
        tuple(features),
        draw(st.integers(0, (1 << 63) - 1)),
        plan,
        draw(st.integers(0, 65)),
        WireSettings(draw(st.sampled_from(IDS)), draw(st.sampled_from(VALUES))),
        hashed,
        draw(st.sampled_from([None, PruningOptions(0.25, metric="gradient", groups=(GroupOptions(("table 0",), 3),))])),
    )


@given(worker_tables())
def test_tables_are_read_as_they_were_written(own):
    document = own.to_document()
    assert document.keys() == MEMBERS
    found = WorkerTables.read(json.loads(json.dumps(document)))
    assert found.to_document() == document
    assert dataclasses.replace(found, features=()) == dataclasses.replace(own, features=())
    expected = [dataclasses.replace(one.table, initializer=one.table.effective_initializer) for one in own.features]
    for table, feature, read in zip(expected, own.features, found.features, strict=True):
        assert read.name == feature.name
        assert read.max_sequence_length == feature.max_sequence_length
        rate = read.table.optimizer.learning_rate
        assert read.table == dataclasses.replace(
            table, optimizer=dataclasses.replace(table.optimizer, learning_rate=rate)
        )
    tables, of_found = tables_of(own.features), tables_of(found.features)
    assert width_order(tables) == width_order(of_found)
    assert stacked_plan(tables, 3) == stacked_plan(of_found, 3)


SERVERS = NamedServers((Address("ps-0", 7000), Address("ps-1", 7000)), "a token", is_encrypted=True)
DOCUMENT = WorkerTables(FEATURES, 3, stacked_plan(tables_of(FEATURES), 2), servers=SERVERS).to_document()


def changed(path: tuple, value: object) -> dict:
    document = copy.deepcopy(DOCUMENT)
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return document


@pytest.mark.parametrize(
    "document",
    [
        changed(("held",), None),
        changed(("held", "tables"), []),
        changed(("held", "tables", 0, "origin", "row_stride"), 2),
        changed(("engine",), []),
        changed(("engine", 0), None),
        changed(("engine", 0, "combiner"), "most"),
        changed(("engine", 0, "combiner"), ["sum"]),
        changed(("engine", 0, "optimizer"), -1),
        changed(("engine", 0, "optimizer"), True),
        changed(("engine", 0, "quantization"), {}),
        changed(("engine", 0, "quantization"), {"num_buckets": 1, "lower": 0.0, "upper": 1.0}),
        changed(("engine", 0, "quantization"), {"num_buckets": 4, "lower": 0.0, "upper": 10**400}),
        changed(("features",), []),
        changed(("features", 0), ["a", 0]),
        changed(("features", 0, 0), 7),
        changed(("features", 0, 1), 100),
        changed(("features", 0, 1), 3),
        changed(("features", 1, 0), "a"),
        changed(("features", 0, 2), -1),
        changed(("features", 0, 2), 1 << 40),
        changed(("plan",), None),
        changed(("plan",), "{"),
        changed(("plan",), "\ud800"),
        changed(("batches",), None),
        changed(("batches",), 1 << 20),
        changed(("ids",), "short"),
        changed(("ids",), []),
        changed(("values",), None),
        changed(("servers",), []),
        changed(("servers", "addresses"), []),
        changed(("servers", "addresses"), ["ps-0:7000"] * 2),
        changed(("servers", "addresses"), [f"ps-{k}:7000" for k in range(MOST_SERVERS + 1)]),
        changed(("servers", "addresses", 0), "ps-0"),
        changed(("servers", "addresses", 0), "ps-0:70000"),
        changed(("servers", "token"), None),
        changed(("servers", "is_encrypted"), 1),
        changed(("servers", "more"), 1),
    ],
)
def test_other_documents_are_refused(document):
    with pytest.raises(DataError):
        WorkerTables.read(document)


def test_servers_that_a_client_names_are_read_as_they_are_written():
    assert WorkerTables.read(DOCUMENT).servers == SERVERS
    assert "a token" not in repr(SERVERS)


def test_combinations_that_training_refuses_are_refused_with_the_same_words():
    """A client need not be the command."""
    limits, plan = {"one": TableLimits(5)}, stacked_plan(tables_of(FEATURES), 2)
    first, *rest = plan.tables
    copied = dataclasses.replace(plan, tables=(dataclasses.replace(first, is_replicated=True), *rest))
    wrong = [
        (WorkerTables(FEATURES, 3, plan, hashed=limits), "hashed tables must be placed without a plan"),
        (WorkerTables(FEATURES, 3, copied, pruning=PruningOptions(0.5)), "pruned tables must be placed by rows"),
    ]
    for one, words in wrong:
        with pytest.raises(DataError, match="must be those of an engine") as raised:
            WorkerTables.read(one.to_document())
        assert words in raised.value.value
    WorkerTables.read(WorkerTables(FEATURES, 3, copied).to_document())
    WorkerTables.read(WorkerTables(FEATURES, 3, hashed=limits, pruning=PruningOptions(0.5)).to_document())
    WorkerTables.read(WorkerTables(FEATURES, 3, plan, pruning=PruningOptions(0.5)).to_document())


def test_a_mutated_document_is_one_error_or_is_written_as_it_is_read():
    for seed in range(scaled(1500)):
        document = mutated(DOCUMENT, Random(seed))
        if not isinstance(document, dict) or document.keys() != MEMBERS:
            continue
        try:
            found = WorkerTables.read(document)
        except DataError:
            continue
        written = found.to_document()  # with other numbers for optimizers, perhaps
        assert WorkerTables.read(written).to_document() == written


def test_rates_are_not_in_the_document():
    tables = [WorkerTables((FeatureSpec("a", TableSpec("t", 5, 2, SGD(rate))),), 0) for rate in (0.5, abs)]
    assert tables[0].to_document() == tables[1].to_document()
