"""Score a model's events and write the scores, in one Beam pipeline over partitions.

    partitions ── Redistribute ── ScorePartitions ──> output/<partition>/scores-<identity>.parquet, one file per fragment

Partitions of one merged fragment are one element, so that one worker loads its memos once.
Row i of a file is the i-th event of its fragment that is not deleted: its keys, raw columns, and predictions. The name of a file
identifies its input (the scores' source, the fragment, the columns), so the same command again computes only what is missing.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from pipelines.outputs.outcomes import count_outcomes, read_outcomes, write_outcome
from pipelines.outputs.partitions import parquet_bytes
from pipelines.outputs.publication import make_folder, write_atomic
from pipelines.runners.elements import CreateStrings, Redistribute
from pipelines.runners.error_documents import Document, error_document, error_from_document
from pipelines.runners.progress import OnProgress, report_progress
from pipelines.runners.remote import require_runnable
from pipelines.runners.runner import RunnerOptions, run_pipeline
from transforms.arrays import Array
from transforms.documents import parse_document
from transforms.errors import HeadraceError, InputError
from transforms.graphs.encoding import digest
from transforms.graphs.graph import raw_columns
from warehouse.files.column_files import MemoRef
from warehouse.reading.reader import read_fragment
from warehouse.solution.parts import SolutionFragment, SolutionPartition
from warehouse.solution.solution import ReadSolution
from warehouse.storage.durable_files import sync_path
from warehouse.storage.storage import Storage
from warehouse.tables.table import Fragment, content_of

#: A function from a table with a column for each input to scores: [rows], or [rows, classes]; of several labels by name.
Score = Callable[[pa.Table], Array | Mapping[str, Array]]
#: Scores of a table, or why it has none.
Scored = Array | Mapping[str, Array] | HeadraceError

PREDICTION = "prediction"
#: The first columns of a file: the partition, the fragment, the stored event of each row in it, and the event's time.
KEYS = ("partition", "fragment", "row", "time")
#: Before the name of a raw column that has that of a key or a prediction.
RAW = "raw_"
_STATE = "_scores"
_SOURCE = "source.json"


@dataclass(frozen=True)
class ScoringConfig:
    """The input and output of a scoring run.

    Attributes:
        home: the warehouse's home, which holds the memos.
        output: a local folder for scores of one ``source``.
        source: the identity of the scores' source, such as a checkpoint's digest.
        load: returns the scoring function; called once per process. Beam sends it to its workers.
        columns: raw columns to write with the scores. One that has the name of a key or of a prediction, but other values, is
            written as :data:`RAW` and its name.
        time_column: the table's; "" without one.
    """

    home: str
    output: str
    source: str
    load: Callable[[], Score]
    columns: tuple[str, ...] = ()
    time_column: str = ""

    @property
    def read(self) -> tuple[str, ...]:
        """The raw columns to read, each once."""
        return tuple(dict.fromkeys((*self.columns, *([self.time_column] if self.time_column else ()))))


@dataclass(frozen=True, slots=True)
class ScoringReport:
    """The counts of a scoring run: ``files`` with ``rows`` were written now, ``known_files`` by earlier runs."""

    partitions: int
    files: int
    rows: int
    known_files: int
    failures: tuple[HeadraceError, ...]


def score_partitions(
    solution: ReadSolution,
    config: ScoringConfig,
    runner: RunnerOptions | None = None,
    progress: OnProgress | None = None,
) -> ScoringReport:
    """Write the missing scores of every fragment of ``solution``.

    A file is whole or absent in every case. A fragment that cannot be read or scored is a failure of the report; the others
    are written. Raises :class:`InputError` for an output with scores of another source, or one that the runner's workers
    cannot reach.
    """
    runner = runner or RunnerOptions()
    require_runnable(runner, config.home, config.output)
    output, state = _opened(solution, config)
    written = state / "solution.json"
    write_atomic(written, json.dumps(solution.to_document(), sort_keys=True).encode())
    for old in state.glob("partition-*.json"):
        old.unlink()
    job = _Job(config, str(output), str(written))
    groups = [",".join(map(str, group)) for group in partition_groups(solution.partitions)]
    with report_progress("scoring", lambda: count_outcomes(state, "partition-"), len(solution.partitions), progress):
        run_pipeline(lambda pipeline: _build(pipeline, job, groups), runner)
    return _report(read_outcomes(state, "partition-"))


def score_share(
    solution: ReadSolution,
    config: ScoringConfig,
    rank: int,
    hosts: int,
    score_all: Callable[[Iterator[pa.Table]], Iterator[Scored]],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ScoringReport:
    """Write the missing scores of this host's fragments; the hosts by rank have all fragments, of about equally many events.

    Args:
        rank: of this host among so many ``hosts``, each of which calls it at once.
        score_all: the scores of tables with a column for each input, in order; an error for one that has none. ``config.load`` is not called.
        progress: called with the written and all fragments of this host.

    The rest is as for :func:`score_partitions`.
    """
    output, _ = _opened(solution, config)
    storage, waiting = Storage(config.home), deque[tuple[_File, pa.Table]]()
    own = [
        one for one in _files(solution, config) if min(one.place * hosts // max(solution.rows, 1), hosts - 1) == rank
    ]
    if rank == 0:
        _remove_old(output, solution, config)
    missing = [one for one in own if not (output / one.path).exists()]
    failures: list[HeadraceError] = []
    rows = done = 0

    def fail(file: _File, error: HeadraceError) -> None:
        error.where = f"{file.partition}, {error.where}" if error.where else file.partition
        failures.append(error)

    def tables() -> Iterator[pa.Table]:
        for file in missing:
            try:
                read = read_fragment(storage, solution, file.fragment, columns=config.read, rows=True)
            except HeadraceError as error:
                fail(file, error)
                continue
            waiting.append((file, read))
            yield read.select(range(len(solution.inputs) + 1))

    for scores in score_all(tables()):
        file, read = waiting.popleft()
        if isinstance(scores, HeadraceError):
            fail(file, scores)
            continue
        table = _scored_table(config, solution, read, (file.partition, file.key), scores)
        make_folder((output / file.path).parent)
        write_atomic(output / file.path, parquet_bytes(table))
        sync_path((output / file.path).parent)
        rows, done = rows + table.num_rows, done + 1
        progress(done, len(missing))
    return ScoringReport(len(solution.partitions), done, rows, len(own) - len(missing), tuple(failures))


@dataclass(frozen=True, slots=True)
class _File:
    """The file of a fragment: its path in the output, its keys, and the stored events of all fragments before it."""

    path: str
    partition: str
    key: str
    fragment: SolutionFragment
    place: int


def _files(solution: ReadSolution, config: ScoringConfig) -> Iterator[_File]:
    place = 0
    for partition in solution.partitions:
        names, keys = _names(config, solution, partition), fragment_keys(partition.fragments)
        for fragment, name, key in zip(partition.fragments, names, keys, strict=True):
            yield _File(f"{partition.key}/{name}", partition.key, key, fragment, place)
            place += fragment.live_rows


def _remove_old(output: Path, solution: ReadSolution, config: ScoringConfig) -> None:
    """Remove the files of fragments that no longer exist."""
    for partition in solution.partitions:
        _remove_others(output / partition.key, _names(config, solution, partition))


def _remove_others(folder: Path, names: Sequence[str]) -> None:
    for old in folder.glob("scores-*.parquet"):
        if old.name not in names:
            old.unlink()


def _opened(solution: ReadSolution, config: ScoringConfig) -> tuple[Path, Path]:
    """The output, which is this source's, and its folder of state."""
    output = Path(config.output).absolute()
    state = output / _STATE
    make_folder(state)
    _claim(state, solution, config)
    return output, state


def partition_groups(partitions: Sequence[SolutionPartition]) -> list[list[int]]:
    """The positions of all partitions; those with parts of one merged fragment are a group.

    A partition with parts of several merged fragments is in the first one's group.
    """
    groups: dict[tuple[MemoRef, ...] | int, list[int]] = {}
    for position, partition in enumerate(partitions):
        files = (one.files for one in partition.fragments if one.window is not None and one.files)
        groups.setdefault(next(files, position), []).append(position)
    return list(groups.values())


def _claim(state: Path, solution: ReadSolution, config: ScoringConfig) -> None:
    """Assign the output to this source, or check that it is."""
    wanted = {"model": solution.model, "model_version": solution.model_version, "source": config.source,
              "columns": list(config.columns), "keys": [*KEYS, config.time_column]}  # fmt: skip
    place = state / _SOURCE
    if place.exists():
        found = parse_document(place.read_bytes(), f"scores in {config.output}").value
        if found != wanted:
            raise InputError("an output must hold scores of one checkpoint and one set of columns", where=config.output,
                             value=_to_text(found), allowed=_to_text(wanted),
                             next_step="name another folder with --output, or remove this one")  # fmt: skip
        return
    write_atomic(place, json.dumps(wanted, sort_keys=True).encode())


def _to_text(document: Any) -> str:
    return json.dumps(document, sort_keys=True)[:300]


def _build(pipeline: beam.Pipeline, job: _Job, groups: Sequence[str]) -> None:
    _ = (
        pipeline
        | "Partitions" >> CreateStrings(groups)
        | "Redistribute" >> Redistribute()
        | "ScorePartitions" >> beam.ParDo(ScorePartitions(job))
    )


@dataclass(frozen=True)
class _Job:
    config: ScoringConfig
    output: str
    solution: str

    def score(self, positions: Sequence[int]) -> Iterator[tuple[int, Document]]:
        """Score partitions; the position and the outcome of each as a document."""
        whole, score = _load(self.solution, self.config.load)
        # It has loaded columns of its own, since other threads score other merged fragments.
        solution = replace(whole, partitions=tuple(whole.partitions[position] for position in positions))
        for position, partition in zip(positions, solution.partitions, strict=True):
            yield position, self._score_partition(solution, partition, score)

    def _score_partition(self, solution: ReadSolution, partition: SolutionPartition, score: Score) -> Document:
        folder = Path(self.output) / partition.key
        make_folder(folder)
        files = rows = known = 0
        errors = []
        names = _names(self.config, solution, partition)
        keys = fragment_keys(partition.fragments)
        for fragment, name, key in zip(partition.fragments, names, keys, strict=True):
            if (folder / name).exists():
                known += 1
                continue
            try:
                table = self._score(solution, fragment, score, (partition.key, key))
                write_atomic(folder / name, parquet_bytes(table))
                files, rows = files + 1, rows + table.num_rows
            except HeadraceError as error:
                error.where = f"{partition.key}, {error.where}" if error.where else partition.key
                errors.append(error_document(error))
        _remove_others(folder, names)
        sync_path(folder)
        return {"partition": partition.key, "files": files, "rows": rows, "known": known, "errors": errors}

    def _score(
        self, solution: ReadSolution, fragment: SolutionFragment, score: Score, place: tuple[str, str]
    ) -> pa.Table:
        """The rows of one fragment's file; ``place``: the keys of its partition and of itself."""
        read = read_fragment(Storage(self.config.home), solution, fragment, columns=self.config.read, rows=True)
        with _ONE_AT_A_TIME:
            scores = score(read.select(range(len(solution.inputs) + 1)))
        return _scored_table(self.config, solution, read, place, scores)


def _scored_table(
    config: ScoringConfig,
    solution: ReadSolution,
    read: pa.Table,
    place: tuple[str, str],
    scores: Array | Mapping[str, Array],
) -> pa.Table:
    """The rows of one fragment's file.

    Args:
        read: inputs, label, raw columns and the stored event of each row, by position: a raw column may have the name of an input.
        place: the keys of the fragment's partition and of itself.
    """
    width = len(solution.inputs) + 1
    raw = read.select(range(width, width + len(config.read)))
    named = {f"{PREDICTION}_{name}": one for name, one in scores.items()} if isinstance(scores, Mapping) else {PREDICTION: scores}  # fmt: skip
    predictions = {name: _column(one) for name, one in named.items()}
    time = config.time_column
    times = raw.column(time) if time else pa.nulls(raw.num_rows, pa.timestamp("us", "UTC"))
    keys = (*(pa.repeat(one, raw.num_rows) for one in place), read.column(read.num_columns - 1), times)
    return _joined(dict(zip(KEYS, keys, strict=True)), raw, config, predictions)


def _joined(
    keys: Mapping[str, pa.Array], raw: pa.Table, config: ScoringConfig, predictions: Mapping[str, pa.Array]
) -> pa.Table:
    """The columns of a file: keys, raw columns, predictions."""
    found = dict(keys)
    for name, written in written_names(config.columns, {*keys, *predictions}).items():
        if not name == KEYS[-1] == config.time_column:  # the key has its values
            found[written] = raw.column(name)
    found.update(predictions)
    return pa.table(list(found.values()), names=list(found))


def written_names(columns: Sequence[str], own: Set[str]) -> dict[str, str]:
    """The name under which each raw column is written; ``own``: the names of keys and predictions, which none of them gets."""
    names = {}
    for name in columns:
        written = name
        while written in own or (written != name and written in columns):
            written = f"{RAW}{written}"
        names[name] = written
    return names


def fragment_keys(fragments: Sequence[Fragment]) -> list[str]:
    """The key of each fragment in its partition: its identity; copies of a file, which have the same one, are numbered."""
    seen: Counter[str] = Counter()
    keys = []
    for fragment in fragments:
        seen[fragment.fragment_id] += 1
        number = seen[fragment.fragment_id]
        keys.append(fragment.fragment_id if number == 1 else f"{fragment.fragment_id}-{number}")
    return keys


def _column(scores: np.ndarray[Any, np.dtype[Any]]) -> pa.Array:
    """float32: one value per event, or a list with one per class."""
    values = pa.array(np.ascontiguousarray(scores, np.float32).reshape(-1), pa.float32())
    return values if scores.ndim == 1 else pa.FixedSizeListArray.from_arrays(values, scores.shape[1])


def _names(config: ScoringConfig, solution: ReadSolution, partition: SolutionPartition) -> list[str]:
    """The files of a partition's fragments, in order; fragments of equal content have different files."""
    read = {column.name for item in solution.inputs for column in raw_columns(item.root)} | set(config.read)
    inputs = [[item.name, item.fingerprint] for item in solution.inputs]
    columns = [*KEYS, config.time_column, *config.columns]
    seen: Counter[str] = Counter()
    names = []
    for fragment in partition.fragments:
        deleted = "" if fragment.deletions is None else fragment.deletions.checksum
        content = digest([config.source, columns, inputs, fragment.fragment_id, content_of(fragment, read), deleted])
        names.append(f"scores-{digest([content, seen[content]])[:16]}.parquet")
        seen[content] += 1
    return names


#: The model's libraries compute one batch at a time per process.
_ONE_AT_A_TIME = Lock()


@lru_cache(maxsize=4)
def _load(path: str, load: Callable[[], Score]) -> tuple[ReadSolution, Score]:
    return ReadSolution.from_json(Path(path).read_bytes()), load()


@beam.typehints.with_input_types(str)
@beam.typehints.with_output_types(str)
class ScorePartitions(beam.DoFn):
    """:meth:`_Job.score`, its outcome kept as a document."""

    def __init__(self, job: _Job) -> None:
        self._job = job

    def process(self, element: str) -> list[str]:
        """Score the partitions at these positions, separated by commas; their keys."""
        keys = []
        for position, outcome in self._job.score([int(position) for position in element.split(",")]):
            write_outcome(Path(self._job.output) / _STATE, f"partition-{position:06d}", outcome)
            keys.append(str(outcome["partition"]))
        return keys


def _report(outcomes: Sequence[Document]) -> ScoringReport:
    def total(name: str) -> int:
        return sum(int(outcome[name]) for outcome in outcomes)  # type: ignore[call-overload]

    errors = [error for outcome in outcomes for error in outcome["errors"]]  # type: ignore[attr-defined]
    return ScoringReport(len(outcomes), total("files"), total("rows"), total("known"),
                         tuple(error_from_document(error) for error in errors))  # fmt: skip
