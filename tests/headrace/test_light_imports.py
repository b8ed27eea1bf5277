from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.cli.main import run

ROOT = Path(__file__).parents[2]
HEAVY = ("tensorflow", "keras", "apache_beam", "tensorflow_transform", "pandas", "psycopg", "prometheus_client")


def loaded(program: str) -> set[str]:
    report = f"{program}\nimport sys; print(*sorted(m for m in sys.modules if m in {HEAVY!r}))"
    done = subprocess.run([sys.executable, "-c", report], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split()) if done.stdout.strip() else set()


@pytest.mark.parametrize(
    "module",
    ["headrace", "headrace.cli.main", "transforms.execution.plan", "warehouse", "warehouse.reading.reader", "trainer", "trainer.run.reading.stream",
     "trainer.checkpoints.checkpoint", "trainer.checkpoints.publish", "trainer.tables"],
)  # fmt: skip
def test_light_modules_load_neither_tensorflow_nor_beam(module):
    assert loaded(f"import {module}") == set()


def test_online_answers_load_no_database():
    report = "import headrace as hr; hr.online; import sys; print({'sqlalchemy', 'alembic'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", report], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
    assert loaded("import headrace as hr; hr.online") == set()


def test_describing_a_model_loads_neither():
    assert (
        loaded('import headrace as hr; hr.Model("m", client="c", label="y").input("q", hr.text("q").lower())') == set()
    )


MEMO = """
import sys

class NoPandas:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == "pandas":
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, NoPandas())

import pyarrow as pa
from transforms.columns.arrow_types import arrow_type
from transforms.types import DType, Ragged
from warehouse.files.memo_file import read_memo_file, write_memo_file
from warehouse.storage.storage import Storage

storage = Storage(sys.argv[1])
columns = {"a": pa.array([1, None, -300]), "b": pa.array([[1, 2], [], [70_000]], arrow_type(Ragged(DType.INT64)))}
written = write_memo_file(storage, "memos/it.memo", columns)
read = read_memo_file(storage, written.path, written.columns, written.checksum)
assert all(read[name].equals(columns[name]) for name in columns)
"""


def test_memos_are_written_and_read_without_pandas(tmp_path):
    """Some of pyarrow asks for it; the core installs without."""
    done = subprocess.run([sys.executable, "-c", MEMO, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


MODEL = """
import headrace as hr

model = hr.Model("search", client="search", label="clicked", table="log")
model.input("query", hr.text("query").lower().unigrams().hash_buckets(1_000))
"""
#: Packages whose import takes longer than what these commands do.
UNUSED = ("numpy", "pyarrow", "numba", "pydantic")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("light")
    (folder / "model.py").write_text(MODEL, encoding="utf-8")
    day = folder / "log" / "date=2026-01-01"
    day.mkdir(parents=True)
    pq.write_table(pa.table({"query": ["red shoes", "blue"], "clicked": [1.0, 0.0]}), day / "a.parquet")
    home = folder / "home"
    for words in (("table", "add", "log", folder / "log"), ("model", "submit", folder / "model.py")):
        assert run([*map(str, words), "--home", str(home)]) == 0
    return home


@pytest.mark.parametrize(
    ("command", "unused"),
    [
        *((command, UNUSED) for command in ("status", "table ls", "model ls", "graphs ls", "queue", "clients list", "jobs ls")),
        ("model explain search", ("pyarrow", "numba", "pydantic")),  # the cheapest plan is found with numpy
        ("table show log", ("numba", "pydantic")),
        ("tasks list", ("numba", "pydantic")),
        ("runs ls", ("numba", "pydantic")),
    ],
)  # fmt: skip
def test_commands_that_read_the_catalog_load_no_package_for_data(home, command, unused):
    program = (
        "import sys; from headrace.cli.main import run\n"
        f"status = run({[*command.split(), '--home', str(home)]!r})\n"
        f"print(status, *sorted(sys.modules.keys() & set({unused!r})))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0", done.stderr


def test_a_run_is_described_without_kernels():
    report = "import headrace.runs.trained_run, sys; print({'pyarrow', 'numba', 'sqlalchemy'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", report], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
