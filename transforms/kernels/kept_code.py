"""The cache of kernels' machine code on disk.

Numba's own cache is not safe for several processes: it numbers files in an index that is written before the file. A
process killed in between, or two that compile for different types, leave machine code under the wrong name. So here a
file is named by its content and checked when it is read, without an index.

Numba imports what compiling needs, scipy among it, before it loads code that is already compiled: half a second of CPU. Here a
file lists the symbols that its code needs, and only a process in which one of them is missing imports the rest.

Cached code is unpickled and run, so it is read only from folders and files that no other user can write
(``trusted_folder.py``).
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import llvmlite
from llvmlite import binding
from numba import config
from numba.core.caching import FunctionCache, IndexDataCacheFile, _Cache
from numba.core.compiler import CompileResult
from numba.core.registry import cpu_target
from numba.core.runtime import rtsys

from transforms.kernels.trusted_folder import is_trusted_file, private_folder, trusted_folder

#: A cache file begins with SHA-256 over the rest.
_PROOF_BYTES = 32
#: Numba's settings that its machine code depends on. Those of the processor are in numba's own key.
_SETTINGS = ("OPT", "BOUNDSCHECK", "LOOP_VECTORIZE", "SLP_VECTORIZE", "DISABLE_INTEL_SVML", "DEBUGINFO_DEFAULT",
             "EXTEND_VARIABLE_LIFETIMES", "LLVM_REFPRUNE_PASS", "LLVM_REFPRUNE_FLAGS")  # fmt: skip


def prepare_loading() -> None:
    """Load what every compiled kernel needs, for a process that is forked before it loads one."""
    rtsys.initialize(cpu_target.target_context)


class KernelCache(_Cache):  # type: ignore[misc, unused-ignore]
    """The cached machine code of one kernel for all types of its arguments. Its folder is chosen at the first use.

    Args:
        function: The kernel as it is written.
        stamp: A digest of all sources that the kernel is made of.
    """

    def __init__(self, function: Callable[..., Any], stamp: str) -> None:
        self._function, self._stamp = function, stamp

    @cached_property
    def files(self) -> KeptFunction:
        """Numba's cache of the function, with files of ours."""
        try:
            return KeptFunction(self._function, self._stamp)
        except RuntimeError:  # numba finds no folder it may write to: a read-only installation, and no home
            config.CACHE_DIR = private_folder()
            return KeptFunction(self._function, self._stamp)

    @property
    def cache_path(self) -> str:
        """The folder of the files."""
        return str(self.files.cache_path)

    def load_overload(self, sig: object, target_context: object) -> object:
        """The compiled function for the types of ``sig``; None if it was never compiled."""
        return self.files.load_overload(sig, target_context)

    def save_overload(self, sig: object, data: object) -> None:
        """Store a compiled function."""
        self.files.save_overload(sig, data)

    def enable(self) -> None:
        """Use the cache, the default."""
        self.files.enable()

    def disable(self) -> None:
        """Neither load nor store."""
        self.files.disable()

    def flush(self) -> None:
        """Nothing: no file is stale, since its name is that of its content."""


class KeptFunction(FunctionCache):  # type: ignore[misc, unused-ignore]
    """As numba's, but imports what compiling needs only for code that needs it."""

    def __init__(self, function: Callable[..., Any], stamp: str) -> None:
        super().__init__(function)
        folder = trusted_folder(_folder_of(function, self._impl.locator.get_cache_path()))
        self._cache_path = folder
        self._cache_file = KeptCode(folder, self._impl.filename_base, stamp)

    def load_overload(self, sig: object, target_context: Any) -> object:
        """The compiled function for the types of ``sig``; None if it was never compiled."""
        prepare_loading()
        with self._guard_against_spurious_io_errors():
            kept = self._cache_file.load(self._index_key(sig, target_context.codegen())) if self._enabled else None
            if kept is None:
                return None
            data, symbols = kept
            if not all(map(binding.address_of_symbol, symbols)):
                target_context.refresh()
            return self._impl.rebuild(target_context, data)

    def _save_overload(self, sig: object, data: CompileResult) -> None:
        if self._enabled and self._impl.check_cachable(data):
            self._impl.locator.ensure_cache_path()
            key = self._index_key(sig, data.codegen)
            self._cache_file.save(key, (self._impl.reduce(data), _outside_symbols(data)))


def _folder_of(function: Callable[..., Any], folder: str) -> str:
    """``folder``, or below ``NUMBA_CACHE_DIR`` one named by the module: numba's own is named by the path of the sources.

    Installations at several paths share code then. It names the module that it belongs to, so a wheel and a checkout do not.
    """
    above = os.path.dirname(folder)
    is_given = bool(config.CACHE_DIR) and above == os.path.dirname(os.path.join(config.CACHE_DIR, "_"))
    return os.path.join(above, function.__module__) if is_given else folder


def _outside_symbols(data: CompileResult) -> tuple[str, ...]:
    """The names that compiled code uses and does not define."""
    module = data.library._final_module
    found = (*module.functions, *module.global_variables)
    return tuple(sorted(each.name for each in found if each.is_declaration and not each.name.startswith("llvm.")))


class KeptCode(IndexDataCacheFile):  # type: ignore[misc, unused-ignore]
    """The cached machine code of one function: a file per compiler, its settings, numba key, such as argument types, and digest."""

    def save(self, key: object, data: object) -> None:
        """Store ``data`` atomically."""
        content: bytes = self._dump((*self._whole_key(key), data))
        os.makedirs(self._cache_path, mode=0o700, exist_ok=True)
        with self._open_for_write(self._path(key)) as file:
            file.write(hashlib.sha256(content).digest() + content)

    def load(self, key: object) -> Any:
        """The data under ``key``; None if there is none, or if the file does not match its name."""
        found = _trusted_bytes(self._path(key))
        proof, content = found[:_PROOF_BYTES], found[_PROOF_BYTES:]
        if hashlib.sha256(content).digest() != proof:
            return None
        *kept, data = pickle.loads(content)
        return data if tuple(kept) == self._whole_key(key) else None

    def _whole_key(self, key: object) -> tuple[object, ...]:
        settings = tuple(repr(getattr(config, name, None)) for name in _SETTINGS)
        return self._version, llvmlite.__version__, settings, self._source_stamp, key

    def _path(self, key: object) -> str:
        name = hashlib.sha256(repr(self._whole_key(key)).encode()).hexdigest()[:32]
        return os.path.join(self._cache_path, f"{Path(self._index_name).stem}.{name}.nbc")


def _trusted_bytes(path: str) -> bytes:
    """The bytes of a file; empty if it is absent or another user may have written it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    with open(descriptor, "rb") as file:
        return file.read() if is_trusted_file(descriptor) else b""
