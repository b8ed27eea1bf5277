"""Components that fail in every way, with healthy ones, on a small log."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import transforms.expressions.expression as hr
from pipelines.fragments.encoded_result import decode_line
from pipelines.fragments.work import ComponentOutcome, FragmentResult, FragmentWork
from pipelines.isolation.limits import IsolationLimits
from pipelines.isolation.memoizing import KnownCulprits, memoize_isolated
from pipelines.isolation.processes import ChildProcesses
from pipelines.worker.job_committer import group_by_fragment
from tests.pipelines.scenes import fill, open_home
from tests.support.processes import PATIENCE_SECS
from transforms.expressions.expression import Expr
from transforms.expressions.model import Model
from transforms.functions import PythonFunction, op
from transforms.functions.sources import source_of_function
from warehouse.queue.lease import lease_tasks

ROWS = 400
BAD, OTHER_BAD = 123, 321
#: Long enough for whatever is healthy here, on a busy machine too; and little for what explodes.
LIMITS = IsolationLimits(memory_bytes=400_000_000, stall_secs=60.0)
HASTY = IsolationLimits(memory_bytes=400_000_000, stall_secs=1.5)


@op(result="string")
def hoards(text):
    """Allocates for ever when it meets the bad event."""
    kept = []
    while "bad" in text.to_pylist():
        kept.append(np.ones(1_000_000))
    return text


@op(result="string")
def loops(text):
    while "bad" in text.to_pylist():
        pass
    return text


@op(result="string")
def backtracks(text):
    """Stuck in C, in one call, holding the interpreter's lock."""
    words = ["a" * 60 + "!" if each == "bad" else each for each in text.to_pylist()]
    return pa.array([each.upper() if re.fullmatch("(a|aa)+", each) else each for each in words])


@op(result="string")
def crashes(text):
    """Reads where there is no memory."""
    if "bad" in text.to_pylist():
        far = np.lib.stride_tricks.as_strided(np.zeros(1), shape=(2,), strides=(2**46,))
        return pa.array([str(far[1])])
    return text


@op(result="string")
def quits(text):
    if "bad" in text.to_pylist():
        raise SystemExit(7)
    return text


@op(result="string")
def raises(text):
    if "bad" in text.to_pylist():
        raise ValueError("a bad event")
    return text


@op(result="string")
def dislikes_the_pair(text):
    """Fails where both events are, and for neither alone."""
    if {"bad", "other bad"} <= set(text.to_pylist()):
        raise ValueError("these two together")
    return text


@op(result="string")
def asks_too_much(text):
    if "bad" in text.to_pylist():
        np.ones(10**15)
    return text


def forged(function: Callable[..., pa.Array]) -> PythonFunction:
    """A function of text as an operator that no declaration has checked, as a catalog written by hand may hold it."""
    source = source_of_function(function)  # type: ignore[arg-type]
    definition = {"name": function.__name__, "source": source, "free": {}, "names": {}, "defaults": [],
                  "keyword_defaults": {}}  # fmt: skip
    made = op(result="string")(pc.utf8_reverse)
    made.bundle = json.dumps({**json.loads(made.bundle), "function": {"definition": 0}, "definitions": [definition]})
    return made


def healthy() -> dict[str, Expr]:
    query, title = hr.text("query"), hr.text("title")
    return {
        "words": query.unigrams().hash_buckets(1000),
        "pairs": title.unigrams().ngrams(2).hash_buckets(1000),
        "common": (query.unigrams() & title.unigrams()).hash_buckets(1000),
        "number": hr.float32("price").fill_null(0.0).log1p(),
    }


def write_events(root: Path, hours: int = 1, rows: int = ROWS) -> Path:
    """A log whose column ``mood`` is "bad" in one event and "other bad" in another of every file."""
    for hour in range(hours):
        random = np.random.default_rng(hour)
        mood = [f"mood {hour} {number}" for number in range(rows)]
        mood[BAD % rows], mood[OTHER_BAD % rows] = "bad", "other bad"
        words = np.array(["red", "blue", "shoe", "boot"])
        texts = [" ".join(words[random.integers(0, 4, 3)]) for _ in range(2 * rows)]
        table = pa.table({"query": texts[:rows], "title": texts[rows:], "mood": mood,
                          "price": pa.array(random.random(rows), pa.float32()),
                          "clicked": random.integers(0, 2, rows)})  # fmt: skip
        folder = root / "date=2026-01-01" / f"hour={hour:02d}"
        folder.mkdir(parents=True)
        pq.write_table(table, folder / "part.parquet")
    return root


def made(inputs: dict[str, Expr], name: str = "mixed") -> Model:
    model = Model(name, client="search", label="clicked", table="log")
    for key, expression in inputs.items():
        model.input(key, expression)
    return model


def leased(folder: Path, model: Model, hours: int = 1, rows: int = ROWS) -> tuple[str, list[FragmentWork]]:
    """A new home in ``folder`` and the work that the model makes there."""
    log = folder / "log"
    with open_home(folder / "home") as warehouse:
        fill(warehouse, log if log.exists() else write_events(log, hours, rows), model)
        tasks = lease_tasks(warehouse, "test", limit=10_000)
        return warehouse.storage.home, [work for work, _ in group_by_fragment(tasks).values()]


def isolated(
    work: FragmentWork, home: str, processes: ChildProcesses, limits: IsolationLimits, known_culprits: KnownCulprits
) -> FragmentResult:
    """One fragment's result as whoever commits it reads it."""
    return decode_line(
        memoize_isolated(work.to_json(), home, processes, limits, known_culprits).line, "a child's answer"
    )


def memoized(
    folder: Path,
    inputs: dict[str, Expr],
    processes: ChildProcesses,
    limits: IsolationLimits = LIMITS,
    rows: int = ROWS,
) -> tuple[FragmentResult, dict[str, ComponentOutcome]]:
    """One fragment's result, and its outcomes by the names of the inputs."""
    model = made(inputs)
    home, (work,) = leased(folder, model, rows=rows)
    result = isolated(work, home, processes, limits, KnownCulprits())
    fingerprints = {item.fingerprint: name for name, item in model.inputs.items()}
    return result, {fingerprints[outcome.column]: outcome for outcome in result.outcomes}


def eventually(what: Callable[[], bool], secs: float = PATIENCE_SECS) -> bool:
    """Whether it comes true, given plenty of time."""
    deadline = time.monotonic() + secs
    while not what() and time.monotonic() < deadline:
        time.sleep(0.01)
    return what()


def is_running(pid: int) -> bool:
    """Whether there is such a process that has not ended; a zombie has."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def descendants(pid: int) -> set[int]:
    """Every process below this one, by the kernel's word."""
    found: set[int] = set()
    ahead = [pid]
    while ahead:
        parent = ahead.pop()
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                new = {int(each) for each in task.read_text().split()} - found
            except OSError:
                continue
            found |= new
            ahead += new
    return found


def open_files(pid: int | None = None) -> int:
    """How many files a process has open."""
    return len(os.listdir(f"/proc/{pid or os.getpid()}/fd"))
