"""Event records: TensorFlow and TensorBoard read what is written; damaged bytes end a file."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.tracking.event_records import Event, event_record, masked_crc, read_events
from tests.support.examples import scaled
from tests.support.mutations import mutated

EVENTS = st.builds(
    Event,
    st.floats(0, 1e12),
    st.integers(0, 2**63 - 1),
    st.dictionaries(st.text(st.characters(exclude_categories=("Cs",)), max_size=20), st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=5),
    st.text(st.characters(exclude_categories=("Cs",)), max_size=20),
    st.booleans(),
)  # fmt: skip


def test_checksums_are_those_of_the_castagnoli_polynomial():
    """The values of RFC 3720, masked."""
    for data, crc in ((bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (bytes(range(32)), 0x46DD794E)):
        assert masked_crc(data) == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@given(st.lists(EVENTS, max_size=4))
@settings(max_examples=scaled(100))
def test_events_come_back(events):
    assert list(read_events(b"".join(map(event_record, events)))) == events


@given(st.lists(EVENTS, min_size=1, max_size=4), st.integers(0, 2**31))
@settings(max_examples=scaled(300))
def test_damaged_bytes_end_a_file(events, seed):
    content = b"".join(map(event_record, events))
    for one, other in zip(read_events(mutated(content, random.Random(seed))), events, strict=False):
        if one != other:  # a whole record was repeated or left out
            assert one in events


@given(st.binary(max_size=200))
@settings(max_examples=scaled(300))
def test_hostile_bytes_with_fitting_checksums_end_a_file(data):
    length = len(data).to_bytes(8, "little")
    content = length + masked_crc(length).to_bytes(4, "little") + data + masked_crc(data).to_bytes(4, "little")
    assert len(list(read_events(content))) <= 1


def test_tensorflow_reads_the_records(tmp_path):
    tf = pytest.importorskip("tensorflow")
    from tensorflow.core.util import event_pb2

    events = [Event(1.5e9, version="brain.Event:2"), Event(1.6e9, 7, {"windows/auc": 0.5, "windows/log_loss": 1e-3}), Event(1.7e9, 2**40, voids_later=True)]  # fmt: skip
    path = tmp_path / "events"
    path.write_bytes(b"".join(map(event_record, events)))
    found = [event_pb2.Event.FromString(one.numpy()) for one in tf.data.TFRecordDataset(str(path))]
    assert [(one.wall_time, one.step) for one in found] == [(one.at_secs, one.step) for one in events]
    assert found[0].file_version == "brain.Event:2"
    assert {one.tag: one.simple_value for one in found[1].summary.value} == {
        name: np.float32(value) for name, value in events[1].scalars.items()
    }
    assert found[2].session_log.status == event_pb2.SessionLog.START
