"""Numbers from text, equal to TensorFlow's ``string_to_number``."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

import headrace as hr
from tests.support.examples import scaled
from tests.transforms.adversarial import bits, python_values
from transforms.execution.plan import compile_plan
from transforms.twins.graph import compute
from transforms.twins.tensors import from_arrow, to_arrow
from transforms.types import Dense, DType, Ragged

PLAIN = ["1", "+1", " 1", "1 ", "\t1\n", "\r1\x0b\x0c", "-0", "1.", ".5", "1e5", "1E+5", "-.5e-3", "1.e3", "0e99999999999",
         "0x1F", "-0X1f", "0x1.8p1", "0X.1P1", "0x1p99999", "0x1p-1074", "0x0.80001p-1074", "inf", "-Infinity", "NaN", "+nan(_a1)",
         "1e400", "-1e400", "1e-400", "5e-324", "2e-324", "1e-310", "1e-45", "1.1e-39", "9223372036854775807", "-9223372036854775808",
         "0" * 33 + "12", "1" * 400, "1." + "0" * 800 + "1", "9007199254740993." + "0" * 50 + "1", "0x1.fffffffffffff7fffff",
         "1.00000017881393432617187499", "1.00000017881393432617187500", "1.00000017881393432617187501", "3.4028235677973366e38",
         "3.40282356779733661637539395458142568447e38", "3.40282356779733661637539395458142568448e38", "0x1.fffffefff",
         "7.006492321624085354618e-46", "7.006492321624085354617e-46", "123456789012345678901234567890", "0.1", "0.30000001192092896",
         "9223372036854775808", "16777217", "1e22", "1e23", "9007199254740993", "1e99999999999999999999999"]  # fmt: skip
REFUSED = ["", " ", "1_0", "1,0", "0x", "infin", "nano", "nan(", "nan(-)", ".", "1e", "1e+", "-", "+", "- 1", "--1", "+-1", "1d", "٣", "１",
           "\x00", "1\x00", "\xa01", "\u20031", "\x1f1", "0b1", "1'000", ".e5", "1 2", "0xg", "1e 5", "0x1p", "0x.p1", "00x1", "i", "1.5.5",
           "1e5.0", "0x 1", "e5", "1e5e5", "1+1"]  # fmt: skip


def _read(texts: Sequence[str], dtype: str) -> pa.Array:
    root = hr.text("it").cast(dtype).node
    result = compile_plan({"it": root}).run(pa.table({"it": pa.array(texts, pa.string())}))
    assert not result.failures
    return result.columns["it"]


def _by_tensorflow(text: str, dtype: str) -> float | None:
    try:
        return tf.strings.to_number([text], dtype).numpy()[0].item()  # type: ignore[no-any-return]
    except tf.errors.InvalidArgumentError:
        return None


@pytest.mark.parametrize("dtype", ["int64", "float32", "float64"])
def test_each_text_is_read_as_tensorflow_reads_it(dtype: str) -> None:
    texts, wanted = PLAIN + REFUSED, Dense(DType(dtype))
    got = python_values(_read(texts, dtype), wanted)

    assert [bits(value, wanted) for value in got] == [bits(_by_tensorflow(text, dtype), wanted) for text in texts]
    assert got[len(PLAIN) :] == [None] * len(REFUSED)


_NUMBERISH = st.one_of(
    st.text("0123456789", min_size=1, max_size=25),
    st.text("+-.eE0123456789xXpPaAfFinNty() \t", max_size=12),
    st.floats().map(repr),
    st.floats(width=32).map(lambda x: f"{x:.30e}"),
    st.integers(-(2**65), 2**65).map(str),
    st.builds("{}.{}e{}".format, st.integers(-(10**18), 10**18), st.integers(0, 10**12), st.integers(-330, 320)),
    st.builds("{}0x{:x}.{:x}p{}".format, st.sampled_from(["", "-"]), st.integers(0, 2**70), st.integers(0, 2**70),
              st.integers(-1200, 1100)),
)  # fmt: skip


@given(texts=st.lists(_NUMBERISH, max_size=20), dtype=st.sampled_from(["int64", "float32", "float64"]))
@settings(max_examples=scaled(300))
@example(texts=["0.1"] * 3, dtype="float32")
def test_random_texts_are_read_as_tensorflow_reads_them(texts: list[str], dtype: str) -> None:
    wanted = Dense(DType(dtype))

    got = python_values(_read(texts, dtype), wanted)

    assert [bits(value, wanted) for value in got] == [bits(_by_tensorflow(text, dtype), wanted) for text in texts]


@given(low=st.floats(0, 2.0**127, width=32), aside=st.sampled_from([-1, 0, 1]))
@settings(max_examples=scaled(100))
def test_a_text_beside_a_tie_of_float32_is_rounded_once(low: float, aside: int) -> None:
    high = float(np.nextafter(np.float32(low), np.float32(math.inf)))
    between = (Fraction(low) + Fraction(high)) / 2 + Fraction(aside, 10**60)
    text = f"{between.numerator * 10**220 // between.denominator}e-220"

    (got,) = _read([text], "float32").to_pylist()

    even = low if struct.unpack("<I", struct.pack("<f", low))[0] % 2 == 0 else high
    assert got == {-1: low, 0: even, 1: high}[aside]


def test_an_item_that_writes_no_number_is_left_out_and_a_twin_raises_nothing() -> None:
    rows = [["1", "two", " 3 "], [], ["x"], ["1e400"]]
    column, texts = (
        hr.ragged("it", "string").cast("float64"),
        pa.array(rows, pa.list_(pa.field("item", pa.string(), False))),
    )
    result = compile_plan({"it": column.node}).run(pa.table({"it": texts}))
    twin = compute({"it": column.node}, {"it": from_arrow(texts, Ragged(DType.STRING))})["it"]

    assert result.columns["it"].to_pylist() == [[1.0, 3.0], [], [], [math.inf]]
    assert to_arrow(twin, column.type).to_pylist() == result.columns["it"].to_pylist()


def test_a_cast_of_text_says_what_text_may_become() -> None:
    with pytest.raises(hr.HeadraceError, match="cast from string to bool has no rule"):
        hr.text("it").cast("bool")
