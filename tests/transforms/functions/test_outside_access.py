"""Every access to the outside is refused at declaration, or stopped when the function runs."""

from __future__ import annotations

import json
import runpy
import textwrap
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from transforms.columns.columns import from_arrow
from transforms.errors import DataError
from transforms.functions import Unfingerprintable, op
from transforms.functions.bundle import DEEPEST
from transforms.functions.guard import OutsideAccess, call_guarded
from transforms.functions.run import compute, python_function
from transforms.functions.second_run import SECOND_RUNS, Differs, SecondRuns
from transforms.types import Dense, DType

HEAD = """
import headrace as hr
import pyarrow as pa
import pyarrow.compute as pc
"""
INT64 = '{"dtype":"int64","kind":"dense"}'


def declared(folder: Path, text: str) -> Any:
    path = folder / "features.py"
    path.write_text(HEAD + text + "\n\nmade = hr.op(result='int64')(f)\n", encoding="utf-8")
    return runpy.run_path(str(path), run_name="__headrace_models__")["made"]


def function(before: str, expression: str) -> str:
    return f"{before}\n\n\ndef f(x):\n    {expression}\n    return x\n"


#: name: (before the function, what it does)
REFUSED = {
    "open": ("", "open('p').read()"),
    "io.open": ("import io", "io.open('p')"),
    "open by another name": ("from io import open as reads", "reads('p')"),
    "open as a default": ("def g(p, o=open):\n    return o(p)", "g('p')"),
    "open in a dict": ("tools = {'o': open}", "tools['o']('p')"),
    "open in a partial": ("import functools\ng = functools.partial(open, 'p')", "g()"),
    "np.load": ("import numpy as np", "np.load('p')"),
    "np.load by name": ("from numpy import load", "load('p')"),
    "np.load imported inside": ("", "import numpy as np; np.load('p')"),
    "np.load by an alias inside": ("", "import numpy as np; m = np; m.load('p')"),
    "np.load by an alias": ("import numpy as np", "m = np; m.load('p')"),
    "np.load by getattr": ("import numpy as np", "getattr(np, 'load')('p')"),
    "np.load by a computed name": ("import numpy as np", "getattr(np, 'lo' + 'ad')('p')"),
    "np.load in a list of modules": ("import numpy as np\nmodules = [np]", "modules[0].load('p')"),
    "np.fromfile": ("import numpy as np", "np.fromfile('p')"),
    "np.memmap": ("import numpy as np", "np.memmap('p')"),
    "np.genfromtxt": ("import numpy as np", "np.genfromtxt('p')"),
    "np.random": ("import numpy as np", "np.random.rand()"),
    "pd.read_csv": ("import pandas as pd", "pd.read_csv('p')"),
    "pd.read_parquet": ("from pandas import read_parquet", "read_parquet('p')"),
    "pandas by its inner module": ("import pandas.io.parsers.readers as r", "r.read_csv('p')"),
    "Path.read_text": ("from pathlib import Path", "Path('p').read_text()"),
    "PosixPath": ("import pathlib", "pathlib.PosixPath('p').exists()"),
    "pa.memory_map": ("", "pa.memory_map('p')"),
    "pa.memory_map by an alias": ("g = pa.memory_map", "g('p')"),
    "pa.lib.memory_map": ("", "pa.lib.memory_map('p')"),
    "pa.OSFile": ("", "pa.OSFile('p')"),
    "pa.input_stream": ("", "pa.input_stream('p')"),
    "pa.ipc": ("", "pa.ipc.open_stream('p')"),
    "pq.read_table": ("import pyarrow.parquet as pq", "pq.read_table('p')"),
    "pyarrow.csv": ("from pyarrow import csv", "csv.read_csv('p')"),
    "pyarrow.dataset": ("import pyarrow.dataset as ds", "ds.dataset('p')"),
    "pyarrow.feather": ("from pyarrow.feather import read_table", "read_table('p')"),
    "pyarrow.fs": ("from pyarrow import fs", "fs.LocalFileSystem()"),
    "time zones of Arrow": ("", "pc.assume_timezone(x, 'Asia/Kathmandu')"),
    "a type with a time zone": ("", "x.cast(pa.timestamp('us', 'Asia/Kathmandu'))"),
    "a type with a time zone by its name": ("", "x.cast('timestamp[us, tz=Asia/Kathmandu]')"),
    "sqlite3": ("import sqlite3", "sqlite3.connect('p')"),
    "gzip.open": ("import gzip", "gzip.open('p')"),
    "bz2.open": ("from bz2 import open as g", "g('p')"),
    "os.environ": ("import os", "os.environ['HOME']"),
    "os.environ by name": ("from os import environ", "environ['HOME']"),
    "os.getenv": ("from os import getenv", "getenv('HOME')"),
    "os.stat": ("from os import stat", "stat('p')"),
    "os.path.exists": ("from os.path import exists", "exists('p')"),
    "os.getpid": ("import os", "os.getpid()"),
    "time.time": ("from time import time as clock", "clock()"),
    "time.perf_counter": ("import time", "time.perf_counter()"),
    "datetime.now": ("from datetime import datetime", "datetime.now()"),
    "datetime.now by an alias": ("from datetime import datetime", "D = datetime; D.now()"),
    "datetime.now by getattr": ("from datetime import datetime", "getattr(datetime, 'now')()"),
    "datetime.now as a value": ("from datetime import datetime\nnow = datetime.now", "now()"),
    "date.today": ("import datetime as dt", "dt.date.today()"),
    "random": ("import random", "random.random()"),
    "random by name": ("from random import choice", "choice([1])"),
    "secrets": ("import secrets", "secrets.token_hex()"),
    "uuid4": ("import uuid", "uuid.uuid4()"),
    "socket": ("import socket", "socket.socket()"),
    "subprocess": ("import subprocess", "subprocess.run(['ls'])"),
    "the C part of subprocess": ("import _posixsubprocess", "_posixsubprocess.fork_exec()"),
    "urllib.request": ("from urllib.request import urlopen", "urlopen('p')"),
    "locale": ("import locale", "locale.localeconv()"),
    "zoneinfo": ("import zoneinfo", "zoneinfo.ZoneInfo('Asia/Kathmandu')"),
    "platform": ("import platform", "platform.node()"),
    "sys.argv": ("import sys", "len(sys.argv)"),
    "sys.modules": ("import sys", "sys.modules['os'].getpid()"),
    "importlib": ("import importlib", "importlib.import_module('os')"),
    "pkgutil": ("import pkgutil", "pkgutil.get_data('a', 'b')"),
    "ctypes": ("import ctypes", "ctypes.CDLL(None)"),
    "threading": ("import threading", "threading.get_ident()"),
    "gc": ("import gc", "gc.get_objects()"),
    "inspect": ("import inspect", "inspect.stack()"),
    "weakref": ("import weakref", "weakref.ref(x)"),
    "pickle": ("import pickle", "pickle.loads(b'')"),
    "shelve": ("import shelve", "shelve.open('p')"),
    "linecache": ("import linecache", "linecache.getline('p', 1)"),
    "logging": ("import logging", "logging.getLogger().level"),
    "contextvars": ("import contextvars", "contextvars.copy_context()"),
    "hash": ("", "hash('a')"),
    "hash by a method": ("", "'a'.__hash__()"),
    "hash as a key": ("", "sorted(['a', 'b'], key=hash)"),
    "id": ("", "id(x)"),
    "identity": ("A = [1]\nB = [1]", "A is B"),
    "eval": ("", "eval('1')"),
    "globals": ("", "globals()['x']"),
    "vars": ("", "vars(x)"),
    "getattr as a value": ("", "list(map(getattr, [x], ['real']))"),
    "subclasses": ("", "object.__subclasses__()"),
    "globals of a function": ("def g():\n    pass", "g.__globals__"),
    "order of a set": ("", "list({'a', 'b'})"),
    "order of a set in a loop": ("K = {'a', 'b'}", "[each for each in K]"),
    "order of a set of words": ("", "' '.join(set('a b'.split()))"),
    "an attribute set on a global": ("class K:\n    k = 1", "setattr(K, 'k', 2)"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_can_be_seen_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Unfingerprintable) as caught:
        declared(tmp_path, function(*REFUSED[name]))
    assert caught.value.variable
    assert caught.value.next_step


ACCEPTED = {
    "orderless sets": ("K = {'a', 'b'}", "'a' in K and sorted(K) and len(set('ab')) and max(len(w) for w in K)"),
    "identity of singletons": ("import enum\nclass E(enum.Enum):\n    A = 1", "x is None or type(x) is int or E.A is E.A"),
    "hashes": ("import hashlib", "hashlib.sha256(b'a').hexdigest()"),
    "paths as text": ("import os", "os.path.join('a', 'b')"),
    "names of types": ("", "type(x).__name__"),
    "attributes by name": ("", "getattr(x, 'type')"),
    "text in memory": ("import io", "io.StringIO('a').read()"),
    "fixed zones": ("", "pa.timestamp('us', 'UTC'); pa.timestamp('us', tz='+05:45')"),
    "dates": ("import datetime as dt", "dt.datetime(2020, 1, 1).isoformat()"),
}  # fmt: skip


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_depends_on_nothing_outside_is_accepted(tmp_path: Path, name: str) -> None:
    assert declared(tmp_path, function(*ACCEPTED[name]))(pa.array([3])).to_pylist() == [3]


def forged(source: str) -> str:
    """The bundle of a function that no declaration has checked: ``f(x)`` over whole numbers."""
    document = json.loads(op(result="int64")(pc.negate).bundle)
    definition = {"name": "f", "source": textwrap.dedent(source), "free": {}, "names": {}, "defaults": [],
                  "keyword_defaults": {}}  # fmt: skip
    return json.dumps({**document, "function": {"definition": 0}, "definitions": [definition]})


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files of many kinds, all of them readable."""
    import gzip

    import numpy as np

    folder = tmp_path_factory.mktemp("outside")
    (folder / "text").write_text("a,b\n1,2\n")
    np.save(folder / "array.npy", np.arange(3))
    with gzip.open(folder / "zipped.gz", "wb") as file:
        file.write(b"1")
    return folder


#: name: (what the function does, the event)
STOPPED = {
    "open": ("open('{}/text').read()", "open"),
    "os.open": ("import os; os.open('{}/text', 0)", "open"),
    "np.load": ("import numpy as np; np.load('{}/array.npy')", "open"),
    "np.fromfile": ("import numpy as np; np.fromfile('{}/array.npy')", "open"),
    "np.memmap": ("import numpy as np; np.memmap('{}/array.npy')", "open"),
    "pd.read_csv": ("import pandas as pd; pd.read_csv('{}/text')", "open"),
    "Path.read_text": ("from pathlib import Path; Path('{}/text').read_text()", "open"),
    "gzip.open": ("import gzip; gzip.open('{}/zipped.gz')", "open"),
    "sqlite3": ("import sqlite3; sqlite3.connect(':memory:')", "sqlite3.connect"),
    "mmap": ("import mmap; mmap.mmap(-1, 10)", "mmap.__new__"),
    "os.listdir": ("import os; os.listdir('{}')", "os.listdir"),
    "putting into the environment": ("import os; os.environ['HEADRACE_TEST'] = '1'", "os.putenv"),
    "os.remove": ("import os; os.remove('{}/text')", "os.remove"),
    "os.fork": ("import os; os.fork()", "os.fork"),
    "os.system": ("import os; os.system('true')", "os.system"),
    "socket": ("import socket; socket.socket()", "socket.__new__"),
    "subprocess": ("import subprocess; subprocess.Popen(['true'])", "subprocess.Popen"),
    "ctypes": ("import ctypes; ctypes.CDLL(None)", "ctypes.dlopen"),
    "tempfile": ("import tempfile; tempfile.mkdtemp()", "tempfile.mkdtemp"),
    "zoneinfo": ("import zoneinfo; zoneinfo.ZoneInfo.no_cache('Asia/Kathmandu')", "open"),
    "glob": ("import glob; glob.glob('{}/*')", "glob.glob"),
    "shutil": ("import shutil; shutil.copyfile('{0}/text', '{0}/other')", "shutil.copyfile"),
    "all objects": ("import gc; gc.get_objects()", "gc.get_objects"),
}  # fmt: skip


def stopped(source: str) -> DataError:
    with pytest.raises(DataError, match="must depend on its arguments alone") as caught:
        compute([pa.array([1, 2])], forged(source), "{}", Dense(DType.INT64))
    return caught.value


@pytest.mark.parametrize("name", STOPPED)
def test_what_cannot_be_seen_is_stopped_and_named(files: Path, name: str) -> None:
    body, event = STOPPED[name]
    error = stopped(f"def f(x):\n    {body.format(files)}\n    return x\n")
    assert event in str(error.value)
    assert (files / "text").exists()
    assert not (files / "other").exists()


def test_a_swallowed_error_is_still_a_failure(files: Path) -> None:
    body = f"try:\n        open('{files}/text')\n    except BaseException:\n        pass"
    assert f"open '{files}/text'" in str(stopped(f"def f(x):\n    {body}\n    return x\n").value)


def test_imports_and_warnings_may_read_files(files: Path) -> None:
    text = "def f(x):\n    import colorsys, warnings, numpy as np\n    warnings.warn('a warning')\n    np.log(-np.ones(2))\n    return x\n"
    with pytest.warns(UserWarning, match="a warning"):
        assert compute([pa.array([1])], forged(text), "{}", Dense(DType.INT64)).to_pylist() == [1]


def test_the_guard_ends_with_the_call(files: Path) -> None:
    with pytest.raises(OutsideAccess, match="open"):
        call_guarded(lambda: (files / "text").read_text())
    assert (files / "text").read_text()
    assert call_guarded(lambda: 3) == (3, [])


#: name: (the function, what the failure says); none of these raises an audit event
DIFFERENT = {
    "the environment": ("import os\n    return pa.array([len(os.environ)] * len(x))", "other values"),
    "hash of text": ("return pa.array([hash(str(v)) for v in x.to_pylist()])", "other values"),
    "order of a set": ("k = set('abcdefghij')\n    return pa.array([ord(next(iter(k)))] * len(x))", "other values"),
    "identity": ("return pa.array([id(object())] * len(x))", "other values"),
    "the process": ("import os\n    return pa.array([os.getpid()] * len(x))", "other values"),
    "local time": ("import datetime\n    return pa.array([datetime.datetime(2020, 1, 1).astimezone().utcoffset().seconds] * len(x))", "other values"),
}  # fmt: skip


def second(bundle: str, x: pa.Array, result: pa.Array) -> None:
    runs = SecondRuns()
    try:
        runs.check([x], result, bundle, "{}", INT64)
    finally:
        runs.close()


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_second_run_shows_what_raises_no_event(name: str) -> None:
    body, says = DIFFERENT[name]
    bundle = forged(f"def f(x):\n    import pyarrow as pa\n    {body}\n")
    x = pa.array([5, 6, 7])
    with pytest.raises(Differs, match=says) as caught:
        second(bundle, x, compute([x], bundle, "{}", Dense("int64")))  # type: ignore[arg-type]
    assert "for 5" in str(caught.value)


STATEFUL = {
    "a list that grows": ("seen = []\ndef g(v, into=seen):\n    into.append(v)\n    return v", "g(1)", "default 1 of g"),
    "a class that counts": ("class K:\n    n = 0\n    @classmethod\n    def g(cls):\n        cls.n += 1", "K.g()", "K.n"),
    "an instance's cache": ("import dataclasses\n@dataclasses.dataclass\nclass K:\n    known: dict\n    def g(self):\n        self.known[1] = 2\none = K({})", "one.g()", "one.known"),
}  # fmt: skip


@pytest.mark.parametrize("name", STATEFUL)
def test_state_that_is_kept_between_calls_is_named(tmp_path: Path, name: str) -> None:
    before, body, says = STATEFUL[name]
    made = declared(tmp_path, function(before, body))
    with pytest.raises(Differs, match=f"changes {says}"):
        second(made.bundle, pa.array([5, 6, 7]), pa.array([5, 6, 7]))


def test_equal_runs_pass_and_are_made_once(tmp_path: Path) -> None:
    made = declared(tmp_path, function("K = {'a', 'b'}", "sorted(K)"))
    waits: list[int] = []

    class Waiting:
        def __enter__(self) -> None:
            waits.append(1)

        def __exit__(self, *_: object) -> None: ...

    runs = SecondRuns(Waiting)
    x = pa.array(range(100_000))
    for part in (x.slice(0, 10), x.slice(0, 10), x, x):
        runs.check([part], part, made.bundle, "{}", INT64)
    runs.close()
    assert len(waits) == 2


def test_a_split_in_rows_must_change_nothing(tmp_path: Path) -> None:
    made = declared(tmp_path, "def f(x):\n    return pc.add(x, len(x) // 4)\n")
    x = pa.array([1, 2, 3, 4])
    with pytest.raises(Differs, match="gives other values in another process: 1 there and 2 here, for 1"):
        second(made.bundle, x, pc.add(x, 1))


def test_a_plan_fails_the_component_whose_second_run_differs() -> None:
    bundle = forged("def f(x):\n    import pyarrow as pa\n    return pa.array([hash(str(v)) for v in x.to_pylist()])\n")
    column = from_arrow(pa.array([5, 6]), Dense(DType.INT64))
    runs = SecondRuns()
    token = SECOND_RUNS.set(runs)
    try:
        with pytest.raises(DataError, match="gives what it must not") as caught:
            python_function(column, bundle=bundle, keywords="{}", takes=(INT64,), gives=INT64)
    finally:
        SECOND_RUNS.reset(token)
        runs.close()
    assert "in another process" in str(caught.value.value)


DEEP = {
    "a chain of helpers": "\n".join(
        ["def h0(v):\n    return v", *(f"def h{n}(v):\n    return h{n - 1}(v)" for n in range(1, 201)), "def f(x):\n    return h200(x)"]
    ),
    "a deep constant": "K = []\nfor _ in range(5000):\n    K = [K]\ndef f(x):\n    return K",
    "a cyclic list": "K = []\nK.append(K)\ndef f(x):\n    return K",
    "a cyclic mapping": "K = {}\nK['k'] = [K]\ndef f(x):\n    return K",
    "a cyclic instance": "import dataclasses\n@dataclasses.dataclass\nclass C:\n    k: object\nK = C(1)\nK.k = K\ndef f(x):\n    return K",
    "a long expression": "def f(x):\n    return " + "+".join(["x"] * 400),
    "a deep partial": "import functools\ndef g(a, v):\n    return v\nK = g\nfor _ in range(200):\n    K = functools.partial(lambda k, v: v, K)\ndef f(x):\n    return K(x)",
    "classes that hold each other": "class A:\n    pass\nclass B:\n    a = A\nA.b = B\ndef f(x):\n    return A",
    "a deep default": "def g(v, k=" + "(" * 80 + "1" + ",)" * 80 + "):\n    return v\ndef f(x):\n    return g(x)",
}  # fmt: skip


@pytest.mark.parametrize("name", DEEP)
def test_what_is_deep_or_cyclic_is_refused_with_one_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(Unfingerprintable) as caught:
        declared(tmp_path, DEEP[name])
    assert caught.value.next_step


def test_a_chain_within_the_bound_is_accepted(tmp_path: Path) -> None:
    helpers = [f"def h{n}(v):\n    return h{n - 1}(v)" for n in range(1, DEEPEST - 2)]
    text = "\n".join(["def h0(v):\n    return v", *helpers, f"def f(x):\n    return h{DEEPEST - 3}(x)"])
    assert declared(tmp_path, text)(pa.array([3])).to_pylist() == [3]


def test_what_a_function_leaves_in_a_context_does_not_reach_the_next(tmp_path: Path) -> None:
    text = "import decimal\ndef f(x):\n    decimal.getcontext().prec += 1\n    return pa.array([decimal.getcontext().prec] * len(x))\n"
    made = declared(tmp_path, text)
    assert [made(pa.array([1])).to_pylist() for _ in range(2)]
    bundle = made.bundle
    assert compute([pa.array([1])], bundle, "{}", Dense(DType.INT64)).to_pylist() == [29]
    assert compute([pa.array([1])], bundle, "{}", Dense(DType.INT64)).to_pylist() == [29]
