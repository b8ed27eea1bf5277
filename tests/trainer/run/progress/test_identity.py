from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.trainer.synthetic import TYPES, Synthetic, config
from trainer.errors import RunMismatch, TornCheckpoint
from trainer.options.document_field import DocumentField
from trainer.run.progress.identity import RunIdentity, check_options, identity_of
from transforms.graphs.graph import RawColumn, component_document
from transforms.types import Dense, DType
from warehouse.files.column_files import MemoRef
from warehouse.solution.solution import ReadSolution

OPTIONS = config("run")
SOLUTION = Synthetic(3, 10).solution
KEYS = tuple(part.key for part in SOLUTION.partitions)


def go_on(solution: ReadSolution, options=OPTIONS):
    """What options differ, after the table, the label and the inputs were compared."""
    return check_options(identity_of(SOLUTION, OPTIONS), identity_of(solution, options))


def with_fragment(partition: int, **changes) -> ReadSolution:
    parts = list(SOLUTION.partitions)
    first, *rest = parts[partition].fragments
    parts[partition] = replace(parts[partition], fragments=(replace(first, **changes), *rest))
    return replace(SOLUTION, partitions=tuple(parts))


def test_the_document_round_trips():
    identity = identity_of(SOLUTION, OPTIONS)
    again = RunIdentity.read(DocumentField(json.loads(json.dumps(identity.to_document())), "identity"))
    assert again == identity
    assert again.data_digest == identity.data_digest
    assert [item.type for item in again.typed_inputs] == list(TYPES.values())


def test_where_files_lie_and_how_columns_are_obtained_is_no_part_of_it():
    moved = with_fragment(
        0, files=(MemoRef("some.memo", "0" * 64),), path="moved/elsewhere.parquet", fragment_id="other", size_bytes=9
    )
    assert identity_of(replace(moved, table_version=7, model_version=3), OPTIONS) == identity_of(SOLUTION, OPTIONS)
    digests = {**SOLUTION.partitions[0].fragments[0].digests, "unused": "changed"}
    assert identity_of(with_fragment(0, digests=digests), OPTIONS) == identity_of(SOLUTION, OPTIONS)


def test_partitions_are_taken_in_time_order():
    backwards = replace(SOLUTION, partitions=SOLUTION.partitions[::-1])
    assert list(identity_of(backwards, OPTIONS).partitions) == list(KEYS)


@pytest.mark.parametrize(
    ("solution", "reason"),
    [
        (replace(SOLUTION, label="bought"), "label is 'bought', was 'clicked'"),
        (replace(SOLUTION, task="regression"), "target is "),
        (replace(SOLUTION, table="other"), "table is 'other', was 'events'"),
        (replace(SOLUTION, inputs=SOLUTION.inputs[:-1]), "input 'mobile' is gone"),
        (replace(SOLUTION, inputs=SOLUTION.inputs[::-1]), "another order"),
    ],
)
def test_another_past_or_model_is_refused_with_the_reason(solution, reason):
    with pytest.raises(RunMismatch) as caught:
        go_on(solution)
    assert reason in caught.value.value


def test_new_and_changed_inputs_are_refused_by_name():
    first, *rest = SOLUTION.inputs
    with pytest.raises(RunMismatch, match="table, label and inputs") as caught:
        go_on(replace(SOLUTION, inputs=(replace(first, fingerprint="0" * 64), *rest)))
    assert (
        "input 'words' is another expression or operator version (000000000000, was wordsfffffff)" in caught.value.value
    )
    kind = Dense(DType.FLOAT64)
    new = replace(first, name="new", type=kind, component=component_document(RawColumn(kind, "new")))
    with pytest.raises(RunMismatch) as caught:
        go_on(replace(SOLUTION, inputs=(*SOLUTION.inputs, new)))
    assert caught.value.value == "input 'new' is new"


def test_changed_options_are_all_listed():
    found = go_on(SOLUTION, replace(OPTIONS, seed=5, dim=8, keep_checkpoints=7))
    assert [one.text() for one in found] == ["option dim is 8, was 4", "option seed is 5, was 0"]


def test_a_document_of_an_older_release_has_no_fragments():
    document = identity_of(SOLUTION, OPTIONS).to_document()
    del document["fragments"]
    old = RunIdentity.read(DocumentField(document, "identity"))
    assert (old.fragments, old.target, old.to_document()) == ({}, "", document)


@pytest.mark.parametrize("part", [[[1, "a", "b"]], [[1, "a", "b", 4]], [[-1, "a", "b", ""]], "x"])
def test_fragments_of_another_form_are_torn(part):
    document = identity_of(SOLUTION, OPTIONS).to_document()
    document["fragments"][KEYS[0]] = part
    with pytest.raises(TornCheckpoint):
        RunIdentity.read(DocumentField(document, "identity"))


def test_a_run_of_an_earlier_release_keeps_a_batch_on_each_host():
    """It recorded no such option; what one process recorded has one meaning only."""
    shared, own = (identity_of(SOLUTION, replace(OPTIONS, batch_rows_per_host=one)) for one in (False, True))
    earlier = replace(
        shared, config={name: one for name, one in shared.config.items() if name != "batch_rows_per_host"}
    )
    assert earlier == own
    assert check_options(earlier, own) == check_options(shared, shared) == ()
    assert [one.text() for one in check_options(earlier, shared)] == ["option batch_rows_per_host is False, was True"]
    assert [one.text() for one in check_options(shared, own)] == ["option batch_rows_per_host is True, was False"]
    assert check_options(earlier, shared, of_job=False) == check_options(shared, own, of_job=False) == ()
