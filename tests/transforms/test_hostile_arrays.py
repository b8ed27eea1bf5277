"""No array crashes a process or reads another row: plans over hostile arrays, and regressions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.kept_kernels import with_bounds_checks
from tests.transforms.adversarial import operation
from tests.transforms.hostile_trials import run_apart
from transforms.columns.arrow_types import arrow_type
from transforms.columns.columns import cast_to_layout, from_arrow
from transforms.errors import DataError, InvalidText
from transforms.execution.plan import compile_plan
from transforms.functions.run import compute
from transforms.graphs.graph import Artifact, RawColumn
from transforms.kernels.text_validity import check_array
from transforms.types import ColumnType, Dense, DType, Ragged, Vector

_ROOT = Path(__file__).resolve().parents[2]
_TEXTS = pa.py_buffer(np.array([0, 2, 3, 5], np.int32))


def _python(source: str, environment: Mapping[str, str] = os.environ) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", source], env={**environment, "PYTHONPATH": str(_ROOT)},
                          capture_output=True, text=True, check=False)  # fmt: skip


@pytest.mark.slow
def test_plans_over_hostile_arrays_refuse_or_give_what_ordinary_arrays_give(tmp_path: Path) -> None:
    tally = run_apart(1, 0, 250, tmp_path, bounds_checked=False)
    assert (tally.plans, tally.deaths, tally.out_of_bounds, tally.defects) == (250, 0, 0, [])
    assert min(tally.unmade, tally.refused, tally.computed) > 0


@pytest.mark.slow
def test_kernels_with_bounds_checks_stay_inside_of_hostile_arrays(tmp_path: Path) -> None:
    tally = run_apart(2, 0, 3000, tmp_path, bounds_checked=True)
    assert (tally.plans, tally.deaths, tally.out_of_bounds, tally.defects) == (3000, 0, 0, [])
    assert min(tally.unmade, tally.refused, tally.computed) > 100


@pytest.mark.parametrize(("at_end", "at"), [(True, 3), (False, -1)])
def test_a_byte_beside_a_guarded_buffer_cannot_be_read(at_end: bool, at: int) -> None:
    source = (
        "import ctypes\nfrom tests.transforms.guard_pages import guarded\n"
        f"buffer = guarded(b'abc', at_end={at_end})\n"
        "print(ctypes.string_at(buffer.address, 3), flush=True)\n"
        f"ctypes.string_at(buffer.address + {at}, 1)\n"
    )
    done = _python(source)
    assert (done.stdout.strip(), done.returncode) == ("b'abc'", -signal.SIGSEGV)


@pytest.mark.slow
@pytest.mark.parametrize("load", ["spans.load64", "spans.load64_big", "spans.load32", "words._maybe_space"])
def test_loads_of_words_are_checked_where_bounds_are(load: str) -> None:
    source = (
        "import numpy as np\nfrom numba import njit\nfrom transforms.kernels import spans, words\n"
        f"load = {load}\n"
        "@njit\ndef read(data, at):\n    return load(data, np.int64(at))\n"
        "data = np.zeros(100, np.uint8)\nread(data, 0)\nread(data, 36)\n"
        "for at in (-1, 97):\n"
        "    try:\n        read(data, at)\n    except IndexError:\n        continue\n"
        "    raise SystemExit(f'read at {at}')\n"
    )
    done = _python(source, with_bounds_checks(os.environ))
    assert done.returncode == 0, done.stderr


def _refused(array: pa.Array | pa.ChunkedArray, column_type: ColumnType) -> DataError:
    with pytest.raises(DataError) as error:
        compile_plan({"it": RawColumn(column_type, "a")}).run(pa.table({"a": array}))
    return error.value


def test_a_wrong_null_count_is_refused() -> None:
    validity = pa.py_buffer(bytes([0b101]))
    array = pa.Array.from_buffers(pa.string(), 3, [validity, _TEXTS, pa.py_buffer(b"ab\xffcd")], 2)
    assert "2 nulls by its count and 1 by its validity" in str(_refused(array, Dense(DType.STRING)))
    check_array(pa.Array.from_buffers(pa.string(), 3, [validity, _TEXTS, pa.py_buffer(b"ab\xffcd")]))


def test_an_empty_chunk_without_offsets_that_begins_later_is_refused() -> None:
    """Arrow reads the offsets that are not there when it joins chunks."""
    kind = arrow_type(Ragged(DType.STRING))
    absent = pa.Array.from_buffers(kind, 0, [None, None], 0, 3, [pa.array([], pa.string())])
    chunks = pa.chunked_array([absent, absent], kind)
    assert "rows without offsets" in str(_refused(chunks, Ragged(DType.STRING)))


def test_vectors_that_lack_items_are_refused() -> None:
    """Arrow's own check forgets where the rows begin."""
    kind = arrow_type(Vector(DType.INT64, 3))
    items = pa.array(range(11), pa.int64())
    array = pa.Array.from_buffers(kind, 2, [None], 0, 2, [items])
    assert "vectors without items" in str(_refused(array, Vector(DType.INT64, 3)))


def test_no_rows_are_no_rows_whatever_their_offset_is() -> None:
    offsets = pa.py_buffer(np.array([-1], np.int32))
    array = pa.Array.from_buffers(pa.large_list(pa.string()), 0, [None, pa.py_buffer(np.array([-1], np.int64))], 0, 0,
                                  [pa.array(["a"])])  # fmt: skip
    narrow = pa.Array.from_buffers(pa.list_(pa.string()), 0, [None, offsets], 0, 0, [pa.array(["a"])])
    for empty in (array, narrow):
        result = compile_plan({"it": RawColumn(Ragged(DType.STRING), "a")}).run(pa.table({"a": empty}))
        assert result.columns["it"].to_pylist() == []
        vectors = compile_plan({"it": RawColumn(Vector(DType.STRING, 3), "a")}).run(pa.table({"a": empty}))
        assert vectors.columns["it"].to_pylist() == []


@pytest.mark.parametrize("chunked", [False, True])
def test_null_items_that_a_dictionary_or_a_type_hides_are_dropped(chunked: bool) -> None:
    coded = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int8()), pa.array(["x", None]))
    hidden = pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), coded)
    kind = arrow_type(Ragged(DType.STRING))
    broken = pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), pa.array(["x", None, "x"]), type=kind)
    for array in (hidden, broken):
        stored: Any = pa.chunked_array([array, array]) if chunked else array
        result = compile_plan({"it": RawColumn(Ragged(DType.STRING), "a")}).run(pa.table({"a": stored}))
        assert result.columns["it"].to_pylist() == [["x"], ["x"]] * (2 if chunked else 1)


def test_items_beneath_a_null_list_are_left_out_whatever_their_type() -> None:
    """Arrow's own ``fill_null`` gives lists of dictionaries other codes than they have, so that chunks do not fit."""
    coded = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.uint32()), pa.array(["x", "y"]))
    offsets, validity = pa.py_buffer(np.array([0, 2, 3], np.int32)), pa.py_buffer(bytes([0b10]))
    hidden = pa.Array.from_buffers(pa.list_(coded.type), 2, [validity, offsets], children=[coded])
    stored = pa.chunked_array([hidden, pa.ListArray.from_arrays(pa.array([0, 3], pa.int32()), coded)])
    result = compile_plan({"it": RawColumn(Ragged(DType.STRING), "a")}).run(pa.table({"a": stored}))
    assert result.columns["it"].to_pylist() == [[], ["x"], ["x", "y", "x"]]


def test_a_code_beneath_a_null_is_followed_by_nothing() -> None:
    """Arrow follows it when it unifies the dictionaries of chunks."""
    codes, validity = pa.py_buffer(np.array([0, -2, 0, 0], np.int32)), pa.py_buffer(bytes([0b1101]))
    kind = pa.dictionary(pa.int32(), pa.string())
    hostile = pa.DictionaryArray.from_buffers(kind, 4, [validity, codes], pa.array(["x"]))
    chunks = pa.chunked_array([hostile, pa.array(["y"] * 4).dictionary_encode()])
    result = compile_plan({"it": RawColumn(Dense(DType.STRING), "a")}).run(pa.table({"a": chunks}))
    assert result.columns["it"].to_pylist() == ["x", None, "x", "x", "y", "y", "y", "y"]


def test_an_array_of_another_type_is_not_read_as_if_it_had_it() -> None:
    wide = pa.array(["a", "b"], pa.large_string())
    with pytest.raises(DataError, match="must have the type of its column"):
        from_arrow(wide, Dense(DType.STRING))
    assert from_arrow(cast_to_layout(wide, Dense(DType.STRING)), Dense(DType.STRING)) is not None


def test_an_artifact_passes_the_door_too() -> None:
    root = operation(
        "vocabulary_lookup", [RawColumn(Dense(DType.STRING), "a"), Artifact(Vector(DType.STRING, 3), "it")], {}
    )
    broken = pa.Array.from_buffers(pa.string(), 3, [None, _TEXTS, pa.py_buffer(b"ab\xffcd")])
    with pytest.raises(InvalidText):
        compile_plan({"it": root}, lambda digest: broken)


def test_what_a_function_returns_passes_the_door_too() -> None:
    bundle = json.dumps({
        "format": "headrace.function/1", "function": {"definition": 0}, "packages": {},
        "definitions": [{
            "name": "broken", "source": "def broken(values):\n    return values.cast('binary').view('string')", "free": {},
            "names": {}, "defaults": [], "keyword_defaults": {},
        }],
    })  # fmt: skip
    with pytest.raises(DataError, match="function broken") as error:
        compute([pa.array([b"Z\xfcrich"], pa.binary())], bundle, "{}", Dense(DType.STRING))
    assert "text must be UTF-8" in str(error.value)
