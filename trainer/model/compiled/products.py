"""Products of matrices in compiled code, by the BLAS of scipy.

The matrices are in flat float32 arrays, row after row, each from a position on and with the floats between the beginnings of two rows. Calls are
single-threaded: equal arguments give equal bits.
"""

from __future__ import annotations

import ctypes
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numba import njit, types
from numba.extending import get_cython_function_address
from threadpoolctl import ThreadpoolController

#: What machine code calls the function by; its address differs from process to process.
_NAME = "headrace_sgemm"
_FLOATS, _INTS, _LETTERS = (types.CPointer(kind) for kind in (types.float32, types.int32, types.uint8))
_sgemm = types.ExternalFunction(
    _NAME,
    types.void(_LETTERS, _LETTERS, _INTS, _INTS, _INTS, _FLOATS, _FLOATS, _INTS, _FLOATS, _INTS, _FLOATS, _FLOATS, _INTS),
)  # fmt: skip
_PLAIN, _TURNED = 0, 1


def _register() -> None:
    """Let compiled code find the function, and keep its library to one thread: the kernels have threads of their own."""
    address = get_cython_function_address("scipy.linalg.cython_blas", "sgemm")
    llvm.add_symbol(_NAME, ctypes.c_void_p(address).value or 0)
    ThreadpoolController().select(user_api="blas").limit(limits=1)


_register()


@njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def settings() -> Any:
    """What a thread passes to the products that it computes, one after the other."""
    letters = np.empty(2, np.uint8)
    letters[0], letters[1] = 78, 84  # N and T
    floats = np.empty(2, np.float32)
    floats[0] = 1.0
    return letters, np.empty(6, np.int32), floats


@njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _call(own: Any, left: int, right: int, m: int, n: int, k: int, a: Any, a_step: int, b: Any, b_step: int, c: Any, c_step: int, beta: float) -> None:  # fmt: skip
    letters, ints, floats = own
    ints[0], ints[1], ints[2], ints[3], ints[4], ints[5] = m, n, k, a_step, b_step, c_step
    floats[1] = beta
    _sgemm(letters[left:].ctypes, letters[right:].ctypes, ints[0:].ctypes, ints[1:].ctypes, ints[2:].ctypes, floats[0:].ctypes,
           a.ctypes, ints[3:].ctypes, b.ctypes, ints[4:].ctypes, floats[1:].ctypes, c.ctypes, ints[5:].ctypes)  # fmt: skip


@njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def rows_times(own: Any, rows: int, inner: int, columns: int, a: Any, a_at: int, a_step: int, b: Any, b_at: int, c: Any, c_at: int, c_step: int) -> None:  # fmt: skip
    """``c = a b``: [rows, columns] from [rows, inner] and a whole matrix [inner, columns]."""
    _call(own, _PLAIN, _PLAIN, columns, rows, inner, b[b_at:], columns, a[a_at:], a_step, c[c_at:], c_step, 0.0)


@njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def turned_times(own: Any, rows: int, inner: int, columns: int, a: Any, a_at: int, a_step: int, b: Any, b_at: int, b_step: int, c: Any, c_at: int) -> None:  # fmt: skip
    """``c = a^T b``: a whole matrix [inner, columns] from [rows, inner] and [rows, columns]."""
    _call(own, _PLAIN, _TURNED, columns, inner, rows, b[b_at:], b_step, a[a_at:], a_step, c[c_at:], columns, 0.0)


@njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def times_turned(own: Any, rows: int, inner: int, columns: int, a: Any, a_at: int, a_step: int, b: Any, b_at: int, c: Any, c_at: int, c_step: int, adds: bool) -> None:  # fmt: skip
    """``c = a b^T``, or added to it: [rows, columns] from [rows, inner] and a whole matrix [columns, inner]."""
    beta = 1.0 if adds else 0.0
    _call(own, _TURNED, _PLAIN, columns, rows, inner, b[b_at:], inner, a[a_at:], a_step, c[c_at:], c_step, beta)
