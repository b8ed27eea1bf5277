"""A child process: it answers requests over a socket until its parent closes the connection.

A request is three lines of JSON: the action, the work, and the list of components that the work refers to; an answer is
two (:mod:`pipelines.isolation.answer`). The child writes its position to the progress cell.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from numba.core import event

from pipelines.fragments.encoded_result import EncodedResult
from pipelines.fragments.progress_cell import Phase, ProgressCell
from pipelines.fragments.run import PlanCache, failure_of_component, memoize_fragment
from pipelines.fragments.work import FragmentWork
from pipelines.isolation.answer import Answer
from pipelines.isolation.shrink import rows_of
from pipelines.runners.error_documents import error_document
from transforms.errors import StorageError
from transforms.execution.plan import Plan, one_line
from transforms.functions.second_run import SECOND_RUNS, SecondRuns
from warehouse.files.artifacts import ArtifactSource
from warehouse.queue.failures import encoded_sample
from warehouse.storage.storage import Storage
from warehouse.tables.raw import read_raw

_PR_SET_PDEATHSIG = 1
_OUT_OF_MEMORY_SCORE = "900"
#: Address space is only written to in part. This limit stops a giant request between two measurements of the parent.
_BACKSTOP_SHARE, _BACKSTOP_BYTES = 2, 2**30

#: The number of stack frames in the text of a defect.
_FRAMES = 3

Document = Mapping[str, Any]


def run_child(connection: socket.socket, cell_fd: int, server_pid: int) -> None:
    """Serve until the parent closes the connection. The process was just forked and has nothing else open."""
    _end_with(server_pid)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with contextlib.suppress(OSError):  # a system without it, or without permission
        Path("/proc/self/oom_score_adj").write_text(_OUT_OF_MEMORY_SCORE)
    cell = ProgressCell.open(cell_fd)
    os.close(cell_fd)
    event.register("numba:compile", _Loading(cell))
    _Child(cell).serve(connection)


def _end_with(server_pid: int) -> None:
    """Let the kernel kill this process when the server ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server_pid:
        os._exit(1)


class _Loading(event.Listener):  # type: ignore[misc, unused-ignore]
    """Writes to the cell when numba generates or loads machine code, which is not the step's own time."""

    def __init__(self, cell: ProgressCell) -> None:
        self._cell = cell
        self._within: list[tuple[Phase, int]] = []

    def on_start(self, event: object) -> None:
        position = self._cell.position
        self._within.append((position.phase, position.step))
        self._cell.enter(Phase.LOADING, position.step)

    def on_end(self, event: object) -> None:
        self._cell.enter(*self._within.pop())


class _Child:
    """The state that requests share: compiled plans, and the fragment of the trials."""

    def __init__(self, cell: ProgressCell) -> None:
        self._cell = cell
        self._plans = PlanCache()
        self._second_runs = SecondRuns(self._mark_loading)
        self._listed: tuple[str, Sequence[Document]] = ("[]", ())
        self._case: tuple[str, Plan, pa.Table] | None = None
        self._actions: Mapping[str, Callable[[Document, str], Answer]] = {
            "memoize": self._memoize, "describe": self._describe, "try": self._try, "sample": self._sample,
        }  # fmt: skip

    def serve(self, connection: socket.socket) -> None:
        """Answer each request."""
        with connection.makefile("rb") as requests:
            while header := requests.readline():
                work, components = (requests.readline().decode("utf-8") for _ in range(2))
                answer = self._answer(json.loads(header), work, components)
                self._cell.enter(Phase.IDLE)
                connection.sendall(answer.to_bytes())

    @contextlib.contextmanager
    def _mark_loading(self) -> Iterator[None]:
        """Writes to the cell that another process computes; its start is not the step's own time."""
        position = self._cell.position
        self._cell.enter(Phase.LOADING, position.step)
        try:
            yield
        finally:
            self._cell.enter(position.phase, position.step)

    def _answer(self, request: Document, text: str, components: str) -> Answer:
        _limit_memory(request["memory_bytes"])
        try:
            if self._listed[0] != components:  # the same for all fragments of a job
                self._listed = components, json.loads(components)
            return self._actions[request["do"]](request, text)
        except StorageError as error:
            return Answer({"storage_error": error_document(error)})
        except MemoryError as error:
            return Answer({"out_of_memory": f"{type(error).__name__}: {error}"})
        except Exception as error:  # a defect of Headrace, which some component may cause
            return Answer({"defect": {"error": _describe_defect(error), "traceback": traceback.format_exc()}})

    def _memoize(self, request: Document, text: str) -> Answer:
        storage = Storage(request["home"])
        token = SECOND_RUNS.set(self._second_runs)
        try:
            result = memoize_fragment(storage, self._work(text), self._plans, self._cell)
        finally:
            SECOND_RUNS.reset(token)
            self._second_runs.close()  # their findings are kept
        encoded = EncodedResult.encode(result)
        return Answer({"counts": encoded.counts}, encoded.line)

    def _work(self, text: str) -> FragmentWork:
        return FragmentWork.from_json(text, self._listed[1])

    def _describe(self, request: Document, text: str) -> Answer:
        """Describe a step of the plan that ``memoize`` compiles for the same work."""
        work = self._work(text)
        components = (
            work.components
            if request["single_component"] is None
            else work.components[request["single_component"] :][:1]
        )
        self._cell.enter(Phase.COMPILING)
        step = self._plans.plan(components, ArtifactSource(request["home"])).describe(request["step"])
        return Answer({"operator": step.operator, "expression": step.expression, "components": list(step.components)})

    def _try(self, request: Document, text: str) -> Answer:
        """Run the one component of the work on some events; the answer has its failure, if any. Nothing is written."""
        plan, raw = self._fragment(request["home"], text)
        table = _take(raw, request["rows"])
        for failure in plan.run(table, self._cell.enter_step, checked=True).failures.values():
            found = failure_of_component(failure)
            return Answer({"failure": found.to_document(), "exceptions": list(failure.exceptions)})
        return Answer({"failure": None})

    def _fragment(self, home: str, text: str) -> tuple[Plan, pa.Table]:
        """The plan and the raw columns, cached for the next trial."""
        if self._case is None or self._case[0] != text:
            work = self._work(text)
            self._cell.enter(Phase.COMPILING)
            plan = self._plans.plan(work.components, ArtifactSource(home))
            names = sorted({column.name for column in plan.columns})
            self._cell.enter(Phase.READING)
            self._case = text, plan, read_raw(Storage(home), work.fragment, names, coded=names)
        return self._case[1], self._case[2]

    def _sample(self, request: Document, text: str) -> Answer:
        """The events in their stored types; empty if they are too large."""
        work = self._work(text)
        plan, _ = self._fragment(request["home"], text)
        names = sorted({column.name for column in plan.columns})
        self._cell.enter(Phase.READING)
        events = _take(read_raw(Storage(request["home"]), work.fragment, names), request["rows"])
        return Answer({"sample": encoded_sample(pa.table([_plain(column) for column in events.columns], names))})


def _describe_defect(error: Exception) -> str:
    """An exception and its last stack frames, the last first, on one line."""
    frames = traceback.extract_tb(error.__traceback__)[: -_FRAMES - 1 : -1]
    places = (f"{'/'.join(Path(one.filename).parts[-3:])}:{one.lineno} in {one.name}" for one in frames)
    return f"{type(error).__name__}: {one_line(error)}, at {', called at '.join(places)}"


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A dictionary-encoded column decoded: its dictionary may have values of other events."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _take(table: pa.Table, ranges: Sequence[Sequence[int]]) -> pa.Table:
    if len(ranges) == 1:
        first, end = ranges[0]
        return table.slice(first, end - first)
    return table.take(pa.array(rows_of([list(one) for one in ranges])))


def _limit_memory(memory_bytes: int) -> None:
    """Limit the address space, in addition to the parent's limit of used memory."""
    wanted = memory_bytes * _BACKSTOP_SHARE + _BACKSTOP_BYTES
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
