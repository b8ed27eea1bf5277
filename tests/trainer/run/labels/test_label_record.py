"""The record of labels as trained: what is read is what was written, and damage is one error."""

from __future__ import annotations

import json
import tracemalloc
import zlib
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.support.mutations import mutated
from trainer.errors import TornCheckpoint
from trainer.options.document_field import DocumentField
from trainer.run.labels.label_record import CompactLabels, LabelRecord

NAN = float("nan")
TOKENS = (b"null", b"-1", b"1e9", b"2147483647", b"0", b"[]", b'""', b"{}", b"257", b"true")


def read(record: LabelRecord) -> LabelRecord:
    return LabelRecord.read(DocumentField(json.loads(json.dumps(record.to_document())), "labels"), record.packed)


def record_of(*of_fragments: list[float]) -> LabelRecord:
    labels = {f"p#{k}": np.array(one, np.float32) for k, one in enumerate(of_fragments)}
    return LabelRecord({key: CompactLabels.of(one) for key, one in labels.items()}, 7)


labels = st.one_of(
    st.lists(st.sampled_from([0.0, 1.0]), max_size=40),
    st.lists(st.sampled_from([0.0, 1.0, NAN, -0.0]), max_size=40),
    st.lists(st.floats(width=32, allow_infinity=False), max_size=600),
)


@given(st.lists(labels, max_size=4))
def test_labels_are_read_as_they_were_written(of_fragments: list[list[float]]) -> None:
    record = record_of(*of_fragments)
    found = read(record)
    assert found.trained_again == 7
    assert list(found.fragments) == list(record.fragments)
    for one, wanted in zip(found.fragments.values(), of_fragments, strict=True):
        assert one.decode().tobytes() == np.array(wanted, np.float32).tobytes()
    assert found.packed.tobytes() == record.packed.tobytes()


@pytest.mark.parametrize(
    ("values", "code_bytes"), [([1], 0), ([0, 1], 1250), ([0, 1, NAN], 10_000), (range(256), 10_000), (range(257), 40_000)]
)  # fmt: skip
def test_few_distinct_labels_take_few_bytes(values: Any, code_bytes: int) -> None:
    drawn = np.random.default_rng(0).choice(np.array(list(values), np.float32), 10_000)
    compact = CompactLabels.of(drawn)
    assert len(compact.codes) == code_bytes
    assert compact.decode().tobytes() == drawn.tobytes()


def test_labels_that_the_first_rows_lack_are_found() -> None:
    rare = np.concatenate([np.zeros(100_000), [1, NAN]]).astype(np.float32)
    compact = CompactLabels.of(rare)
    assert len(compact.distinct) == 3
    assert compact.decode().tobytes() == rare.tobytes()


def test_mutated_records_are_torn_or_valid() -> None:
    """Mutations of the document, of the compressed bytes and of what they hold: one error, or a record that decodes."""
    base = record_of([0.0, 1.0, 1.0, NAN] * 5, [1.0] * 9, [0.0, 1.0] * 11, [float(k) for k in range(300)])
    document, packed = json.dumps(base.to_document()).encode(), base.packed.tobytes()
    random, torn, read_again = Random(20261123), 0, 0
    for k in range(scaled(6000)):
        text, stored = document, packed
        if k % 3 == 0:
            text = mutated(document, random, TOKENS)
        elif k % 3 == 1:
            stored = mutated(packed, random)
        else:
            stored = zlib.compress(mutated(zlib.decompress(packed), random, most=2), 1)
        try:
            field = DocumentField(json.loads(text), "labels")
        except ValueError:
            continue
        try:
            found = LabelRecord.read(field, np.frombuffer(stored, np.uint8))
        except TornCheckpoint:
            torn += 1
        else:
            assert all(len(one.decode()) == one.rows for one in found.fragments.values() if one.rows < 10_000)
            read_again += 1
    assert torn > scaled(2500)
    assert read_again > 0


@pytest.mark.parametrize(
    ("shapes", "stored"),
    [
        ([["a", 2**31 - 1, 0]] * 1, bytes(100)),
        ([["a", 2**31 - 1, 256]], bytes(1 << 22)),
        ([["a", 9, 0]], bytes(1 << 28)),
        ([[str(k), 2**31 - 1, 0] for k in range(1000)], bytes(1 << 22)),
    ],
)
def test_stated_sizes_and_compressed_zeros_take_no_memory(shapes: Any, stored: bytes) -> None:
    packed = np.frombuffer(zlib.compress(stored, 9), np.uint8)
    tracemalloc.start()
    with pytest.raises(TornCheckpoint):
        LabelRecord.read(DocumentField({"fragments": shapes, "trained_again": 0}, "labels"), packed)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 24 << 20


@pytest.mark.parametrize(
    ("shape", "content"),
    [
        (["a", 4, 2], b"\1\0\0\0\0\0\0\0\0"),  # labels that do not ascend
        (["a", 4, 2], b"\0\0\0\0\1\0\0\0\1"),  # a bit after the last event
        (["a", 1, 3], b""),  # more labels than events
        (["a", 3, 3], b"\0\0\0\0\1\0\0\0\2\0\0\0\0\1\3"),  # a code without a label
        (["a", 1], b""),
        ([1, 1, 1], b"\0\0\0\0"),
    ],
)
def test_invalid_content_is_torn(shape: Any, content: bytes) -> None:
    document = DocumentField({"fragments": [shape], "trained_again": 0}, "labels")
    with pytest.raises(TornCheckpoint):
        LabelRecord.read(document, np.frombuffer(zlib.compress(content), np.uint8))


def test_other_arrays_are_torn() -> None:
    record = record_of([1.0, 0.0])
    document = DocumentField(record.to_document(), "labels")
    for packed in (record.packed.astype(np.int16), record.packed.reshape(1, -1), np.append(record.packed, np.uint8(0)),
                   record.packed[:-1]):  # fmt: skip
        with pytest.raises(TornCheckpoint):
            LabelRecord.read(document, packed)
