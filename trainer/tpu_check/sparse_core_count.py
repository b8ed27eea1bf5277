"""Lower SparseCore operators in a process without a TPU.

TensorFlow asks libtpu for the SparseCores of a device while it lowers a SparseCore operator. Without a TPU libtpu has no answer, and the
process ends with a segmentation fault. :func:`set_sparse_cores` gives the answer: it replaces one function pointer in the table through
which TensorFlow calls libtpu. That table has no public interface, so the pair of releases that this was tried with is checked first.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
from pathlib import Path

from trainer.errors import ConfigError

#: The releases whose function table was tried; the environment of ``make tpu`` has them.
TRIED_RELEASES = {"tensorflow-tpu": "2.20.0", "libtpu": "0.0.20"}
_QUESTION = "TpuTopology_MaybeAvailableSparseCoresPerLogicalDevice"
_TABLE = "_ZN15stream_executor3tpu8OpsApiFnEv"  # stream_executor::tpu::OpsApiFn()
_MOST_ENTRIES = 400
_POINTER_BYTES = ctypes.sizeof(ctypes.c_uint64)
_STATUS_OK = 1  # absl::StatusOr<int>: the representation of an OK status, then the value
#: The answers that were given, by address: a callback must live as long as libtpu may call it, and a later answer replaces it.
_answers: dict[int, object] = {}


def set_sparse_cores(sparse_cores: int) -> None:
    """Make this process lower SparseCore operators for chips with this number of SparseCores.

    Raises :class:`ConfigError` for other releases of TensorFlow and libtpu than those that this was tried with.
    """
    _check_releases()
    import libtpu
    import tensorflow as tf

    os.environ.setdefault("TPU_LIBRARY_PATH", str(Path(libtpu.__file__).parent / "libtpu.so"))
    api = ctypes.CDLL(str(Path(tf.__file__).parent / "libtensorflow_cc.so.2"))
    table_of = getattr(api, _TABLE)
    table_of.restype = ctypes.c_void_p
    question = _address_of(getattr(ctypes.CDLL(os.environ["TPU_LIBRARY_PATH"]), _QUESTION))
    prototype = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)

    def answer(result: int, _: int) -> int:
        ctypes.c_uint64.from_address(result).value = _STATUS_OK
        ctypes.c_int.from_address(result + _POINTER_BYTES).value = sparse_cores
        return result

    callback = prototype(answer)
    _replace_entry(table_of(), {question, *_answers}, _address_of(callback))
    _answers[_address_of(callback)] = callback


def _address_of(function: object) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]


def _replace_entry(table: int, wanted: set[int], address: int) -> None:
    for index in range(_MOST_ENTRIES):
        entry = ctypes.c_uint64.from_address(table + index * _POINTER_BYTES)
        if entry.value in wanted:
            entry.value = address
            return
    raise ConfigError("TensorFlow's table of libtpu functions must have the number of SparseCores", value=_QUESTION,
                      next_step="install the environment of `make tpu`")  # fmt: skip


def _check_releases() -> None:
    found = {name: importlib.metadata.version(name) for name in TRIED_RELEASES}
    if found != TRIED_RELEASES:
        raise ConfigError("TensorFlow and libtpu must be the releases that SparseCore lowering was tried with",
                          value=str(found), allowed=str(TRIED_RELEASES),
                          next_step="install the environment of `make tpu`")  # fmt: skip
