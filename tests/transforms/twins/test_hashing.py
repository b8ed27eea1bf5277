"""Ids equal those of TensorFlow's operations."""

from __future__ import annotations

import os
import random

import pyarrow as pa
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import headrace as hr
from tests.transforms.adversarial import NASTY_TEXT
from tests.transforms.operators.test_numbers import run

_WORDS = pa.list_(pa.field("item", pa.string(), nullable=False))
_IDS = pa.list_(pa.field("item", pa.int64(), nullable=False))


@pytest.mark.parametrize("buckets", [1, 1000, 2**31 - 1, 2**63 - 1])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_crosses_are_those_of_tensorflow(buckets: int, count: int) -> None:
    import tensorflow as tf

    source = random.Random(count)
    rows = 300
    columns = {
        "a": [source.choice(NASTY_TEXT) for _ in range(rows)],
        "b": [source.randrange(-(2**63), 2**63) for _ in range(rows)],
        "c": [[source.choice(NASTY_TEXT) for _ in range(source.randrange(4))] for _ in range(rows)],
        "d": [[source.randrange(-5, 5) for _ in range(source.randrange(3))] for _ in range(rows)],
    }
    expressions = [hr.text("a"), hr.int64("b"), hr.ragged("c", "string"), hr.ragged("d", "int64")]
    order = source.sample(range(4), count)
    arrays = dict(zip("abcd", (pa.array(columns["a"]), pa.array(columns["b"]), pa.array(columns["c"], _WORDS),
                               pa.array(columns["d"], _IDS)), strict=True))  # fmt: skip
    tensors = [
        tf.constant(columns["a"])[:, None],
        tf.constant(columns["b"], tf.int64)[:, None],
        tf.ragged.constant(columns["c"], tf.string),
        tf.ragged.constant(columns["d"], tf.int64),
    ]
    got = run(
        hr.cross(*(expressions[i] for i in order), buckets=buckets), **{"abcd"[i]: arrays["abcd"[i]] for i in order}
    )
    ragged = tf.ragged.cross_hashed([tensors[i] for i in order], num_buckets=buckets).to_list()
    assert [value if isinstance(value, list) else [value] for value in got] == ragged
    sparse = [
        t.to_sparse() if isinstance(t, tf.RaggedTensor) else tf.sparse.from_dense(t) for t in tensors[:1] + tensors[2:]
    ]
    words = run(
        hr.cross(expressions[0], *expressions[2:], buckets=buckets), a=arrays["a"], c=arrays["c"], d=arrays["d"]
    )
    crossed = tf.sparse.cross_hashed([_all_of(tensors[0]), *sparse[1:]], num_buckets=buckets)
    assert [id_ for row in words for id_ in row] == crossed.values.numpy().tolist()


def _all_of(column):
    """A dense column as a sparse one that keeps empty texts."""
    import tensorflow as tf

    return tf.RaggedTensor.from_tensor(column).to_sparse()


def test_a_megabyte_has_equal_hashes() -> None:
    import tensorflow as tf

    texts = ["x" * 1_000_000, "é" * 500_000, "\x00" * 1_000_000]
    assert (
        run(hr.text("t").hash_buckets(10**9), t=texts) == tf.strings.to_hash_bucket_fast(texts, 10**9).numpy().tolist()
    )
