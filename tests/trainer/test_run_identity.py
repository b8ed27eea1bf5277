from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.trainer.synthetic import TYPES, Synthetic, config
from trainer.document_field import DocumentField
from trainer.errors import RunMismatch
from trainer.run_identity import RunIdentity, continue_segments, identity_of
from transforms.graph import RawColumn, component_document
from transforms.types import Dense, DType
from warehouse.solution import MemoRef, ReadSolution

OPTIONS = config("run")
SOLUTION = Synthetic(3, 10).solution
KEYS = tuple(part.key for part in SOLUTION.partitions)


def go_on(solution: ReadSolution, options=OPTIONS, trained=KEYS):
    return continue_segments(identity_of(SOLUTION, OPTIONS), (KEYS,), identity_of(solution, options), trained=trained)


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


def test_how_columns_are_obtained_makes_no_difference():
    moved = with_fragment(
        0, files=(MemoRef("some.memo", "0" * 64),), path="moved/elsewhere.parquet", fragment_id="other", size_bytes=9
    )
    assert go_on(replace(moved, table_version=7, model_version=3)) == (KEYS,)


def test_a_change_in_a_column_that_the_model_does_not_read_makes_no_difference():
    digests = {**SOLUTION.partitions[0].fragments[0].digests, "unused": "changed"}
    assert go_on(with_fragment(0, digests=digests)) == (KEYS,)


def test_partitions_are_taken_in_time_order():
    assert go_on(replace(SOLUTION, partitions=SOLUTION.partitions[::-1])) == (KEYS,)


def test_appended_partitions_continue_the_run():
    longer = Synthetic(5, 10).solution
    assert go_on(longer) == (KEYS, ("hour=03", "hour=04"))


@pytest.mark.parametrize("column", ["user", "clicked"])
def test_changed_content_is_refused_by_partition_once_it_was_trained(column):
    digests = {**SOLUTION.partitions[1].fragments[0].digests, column: "changed"}
    changed = with_fragment(1, digests=digests)
    with pytest.raises(RunMismatch) as caught:
        go_on(changed)
    assert caught.value.value == "partition hour=01 has other content than when it was trained"
    assert go_on(changed, trained=KEYS[:1]) == (KEYS,)


@pytest.mark.parametrize(
    ("solution", "reason"),
    [
        (Synthetic(2, 10).solution, "partition hour=02 is gone"),
        (Synthetic(3, 10, first=1).solution, "partition hour=00 is gone"),
        (Synthetic(3, 11).solution, "other content"),
        (replace(SOLUTION, label="bought"), "label is 'bought', was 'clicked'"),
        (replace(SOLUTION, table="other"), "table is 'other', was 'events'"),
        (replace(SOLUTION, inputs=SOLUTION.inputs[:-1]), "input 'mobile' is gone"),
        (replace(SOLUTION, inputs=SOLUTION.inputs[::-1]), "another order"),
    ],
)
def test_another_past_or_model_is_refused_with_the_reason(solution, reason):
    if "other content" in reason:
        parts = [
            replace(p, fragments=tuple(replace(f, rows=f.rows + 1) for f in p.fragments)) for p in solution.partitions
        ]
        solution = replace(solution, partitions=tuple(parts))
    with pytest.raises(RunMismatch) as caught:
        go_on(solution)
    assert reason in caught.value.value


def test_new_and_changed_inputs_are_refused_by_name():
    first, *rest = SOLUTION.inputs
    with pytest.raises(RunMismatch, match="other inputs") as caught:
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
    with pytest.raises(RunMismatch) as caught:
        go_on(SOLUTION, replace(OPTIONS, seed=5, dim=8, keep_checkpoints=7))
    assert caught.value.value == "option dim is 8, was 4; option seed is 5, was 0"


def test_a_partition_in_between_is_refused():
    parts = list(Synthetic(4, 10).solution.partitions)
    recorded = replace(SOLUTION, partitions=(parts[0], parts[1], parts[3]))
    keys = tuple(part.key for part in recorded.partitions)
    now = identity_of(replace(SOLUTION, partitions=tuple(parts)), OPTIONS)
    with pytest.raises(RunMismatch, match="something else") as caught:
        continue_segments(identity_of(recorded, OPTIONS), (keys,), now, trained=keys)
    assert "before the last" in caught.value.value
