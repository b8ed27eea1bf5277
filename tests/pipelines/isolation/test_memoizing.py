"""Failing components in real processes do not affect healthy ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import transforms.expressions.expression as hr
from pipelines.fragments.run import PlanCache, memoize_fragment
from pipelines.fragments.work import ComponentOutcome, FragmentWork
from pipelines.isolation import memoizing
from pipelines.isolation.limits import IsolationLimits
from pipelines.isolation.memoizing import KnownCulprits
from pipelines.isolation.processes import ChildProcesses
from tests.pipelines.isolation import scenes
from tests.pipelines.isolation.scenes import (
    BAD,
    HASTY,
    LIMITS,
    OTHER_BAD,
    ROWS,
    eventually,
    healthy,
    isolated,
    leased,
    made,
    memoized,
    write_events,
)
from transforms.errors import StorageError
from transforms.execution.plan import compile_plan
from transforms.functions import op
from transforms.graphs.graph import component_from_document
from warehouse.queue.failures import Failure
from warehouse.storage.storage import Storage

MOOD = hr.text("mood")


def checksums(outcomes: dict[str, ComponentOutcome], names: Iterable[str]) -> dict[str, str]:
    return {name: outcomes[name].checksum for name in names}


def undisturbed(folder: Path, rows: int = ROWS) -> tuple[bytes, dict[str, str]]:
    """The memo file of the healthy components alone, computed in this process, and its checksums by input."""
    model = made(healthy())
    home, (work,) = leased(folder, model, rows=rows)
    result = memoize_fragment(Storage(home), work, PlanCache())
    fingerprints = {item.fingerprint: name for name, item in model.inputs.items()}
    sums = {fingerprints[outcome.column]: outcome.checksum for outcome in result.outcomes}
    return Storage(home).read_bytes(result.files[0].path), sums


def failed_beside_healthy(
    tmp_path: Path,
    processes: ChildProcesses,
    bad: hr.Expr,
    limits: IsolationLimits = LIMITS,
    rows: int = ROWS,
) -> Failure:
    """The failure of ``bad``, after a check that its neighbours' memos are one file, to the byte what they would be."""
    log = tmp_path / "with" / "log"
    write_events(log, rows=rows)
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "log").symlink_to(log)
    content, sums = undisturbed(tmp_path / "without", rows)  # first: kernels that are compiled now cannot stall later
    result, outcomes = memoized(tmp_path / "with", {**healthy(), "bad": bad}, processes, limits, rows)
    assert checksums(outcomes, healthy()) == sums
    assert all(outcomes[name].failure is None for name in healthy())
    assert [Storage(str(tmp_path / "with" / "home")).read_bytes(file.path) for file in result.files] == [content]
    failure = outcomes["bad"].failure
    assert failure is not None
    assert failure.operator == "python_function"
    assert failure.expression.startswith("python_function(mood, ")
    return failure


def sampled(failure: Failure) -> list[dict[str, object]]:
    table = failure.sample_table()
    assert table is not None
    return list(table.to_pylist())


@pytest.mark.slow
def test_what_raises_fails_with_the_one_event_that_makes_it(tmp_path: Path, processes: ChildProcesses) -> None:
    failure = failed_beside_healthy(tmp_path, processes, scenes.raises(MOOD))
    assert failure.kind == "raised"
    assert "ValueError" in failure.error
    assert (failure.events, sampled(failure)) == ((BAD,), [{"mood": "bad"}])


@pytest.mark.slow
def test_events_that_fail_only_together_are_found_together(tmp_path: Path, processes: ChildProcesses) -> None:
    failure = failed_beside_healthy(tmp_path, processes, scenes.dislikes_the_pair(MOOD))
    assert failure.kind == "raised"
    assert failure.events == (BAD, OTHER_BAD)
    assert sampled(failure) == [{"mood": "bad"}, {"mood": "other bad"}]


@pytest.mark.slow
def test_a_crash_in_c_is_cut_out(tmp_path: Path, processes: ChildProcesses) -> None:
    failure = failed_beside_healthy(tmp_path, processes, scenes.crashes(MOOD))
    assert (failure.kind, failure.error, failure.events) == ("lost", "its process was ended by SIGSEGV", (BAD,))


@pytest.mark.slow
def test_a_function_that_ends_its_process_is_cut_out(tmp_path: Path, processes: ChildProcesses) -> None:
    failure = failed_beside_healthy(tmp_path, processes, scenes.quits(MOOD))
    assert (failure.kind, failure.error, failure.events) == ("lost", "its process ended with status 7", (BAD,))


@pytest.mark.slow
def test_what_allocates_for_ever_is_cut_out(tmp_path: Path, processes: ChildProcesses) -> None:
    failure = failed_beside_healthy(tmp_path, processes, scenes.hoards(MOOD), rows=30)
    assert (failure.kind, failure.error) == ("memory", "needed more than 0.4 GB")
    assert failure.events == (BAD % 30,)


@pytest.mark.slow
def test_what_is_refused_memory_is_out_of_memory(tmp_path: Path, processes: ChildProcesses) -> None:
    failure = failed_beside_healthy(tmp_path, processes, scenes.asks_too_much(MOOD))
    assert (failure.kind, failure.events) == ("memory", (BAD,))
    assert "Unable to allocate" in failure.error


@pytest.mark.slow
def test_what_never_ends_is_cut_out(tmp_path: Path, processes: ChildProcesses) -> None:
    failure = failed_beside_healthy(tmp_path, processes, scenes.loops(MOOD), HASTY, rows=5)
    assert (failure.kind, failure.error, failure.events) == ("stalled", "took more than 1.5 s", (BAD % 5,))


@pytest.mark.slow
def test_what_is_stuck_in_c_is_cut_out(tmp_path: Path, processes: ChildProcesses) -> None:
    failure = failed_beside_healthy(tmp_path, processes, scenes.backtracks(MOOD), HASTY)
    assert (failure.kind, failure.error, failure.events) == ("stalled", "took more than 1.5 s", (BAD,))


@pytest.mark.slow
def test_every_misbehaviour_at_once(tmp_path: Path, processes: ChildProcesses) -> None:
    bad = ("raises", "dislikes_the_pair", "crashes", "quits", "hoards", "loops", "backtracks", "asks_too_much")
    inputs = {**healthy(), **{name: getattr(scenes, name)(MOOD) for name in bad}}
    result, outcomes = memoized(tmp_path, inputs, processes, HASTY, rows=20)
    _, sums = undisturbed(tmp_path / "without", rows=20)
    assert checksums(outcomes, healthy()) == sums
    kinds = {name: outcomes[name].failure.kind for name in bad if outcomes[name].failure}  # type: ignore[union-attr]
    assert kinds == {"raises": "raised", "dislikes_the_pair": "raised", "crashes": "lost", "quits": "lost",
                     "hoards": "memory", "loops": "stalled", "backtracks": "stalled", "asks_too_much": "memory"}  # fmt: skip
    assert len(result.files) == 1


@pytest.mark.slow
def test_a_sample_makes_the_component_fail_by_itself(tmp_path: Path, processes: ChildProcesses) -> None:
    """What is kept is enough to see the failure again, far from the data."""
    model = made({**healthy(), "bad": scenes.dislikes_the_pair(MOOD)})
    home, (work,) = leased(tmp_path, model)
    result = isolated(work, home, processes, LIMITS, KnownCulprits())
    ((wanted, outcome),) = ((one, found) for one, found in zip(work.components, result.outcomes, strict=True)
                            if found.failure is not None)  # fmt: skip
    assert outcome.failure is not None
    events = outcome.failure.sample_table()
    assert events is not None
    stored = pq.read_table(work.fragment.path)
    assert events.equals(stored.take(pa.array(outcome.failure.events)).select(["mood"]))
    again = compile_plan({"it": component_from_document(dict(wanted.component))}).run(events)
    assert again.failures["it"].error == outcome.failure.error
    for left_out in range(2):
        assert (
            not compile_plan({"it": component_from_document(dict(wanted.component))})
            .run(events.slice(left_out, 1))
            .failures
        )


@pytest.mark.medium
def test_a_sample_that_is_too_large_is_left_out(tmp_path: Path, processes: ChildProcesses) -> None:
    @op(result="string")
    def dislikes_long_texts(text):
        if any(len(each or "") > 100_000 for each in text.to_pylist()):
            raise ValueError("too long")
        return text

    log = write_events(tmp_path / "log")
    path = log / "date=2026-01-01" / "hour=00" / "part.parquet"
    raw = pq.read_table(path, partitioning=None)
    moods = raw.column("mood").to_pylist()
    moods[7] = "x" * 200_000
    pq.write_table(raw.set_column(raw.schema.get_field_index("mood"), "mood", pa.array(moods)), path)
    _, outcomes = memoized(tmp_path, {"bad": dislikes_long_texts(MOOD)}, processes)
    failure = outcomes["bad"].failure
    assert failure is not None
    assert (failure.kind, failure.events, failure.sample) == ("raised", (), "")
    assert "too long" in failure.message


@op(result="string")
def swells(text, *, letter="x"):
    """300,000 bytes an event."""
    return pa.array([letter * 300_000 for _ in text.to_pylist()])


@pytest.mark.slow
def test_components_that_need_too_much_only_together_are_computed_in_parts(
    tmp_path: Path, processes: ChildProcesses
) -> None:
    inputs = {f"swells_{letter}": swells(MOOD, letter=letter) for letter in "abcdefghijkl"}
    result, outcomes = memoized(tmp_path, inputs, processes, rows=100)
    assert [outcome.failure for outcome in outcomes.values()] == [None] * 12
    assert 1 < len(result.files) < 12
    for name, outcome in outcomes.items():
        assert result.file_of(outcome).path == outcome.path
        (array,) = _columns(tmp_path, outcome, result.file_of(outcome).checksum)
        assert set(array.to_pylist()) == {name[-1] * 300_000}


def _columns(tmp_path: Path, outcome: ComponentOutcome, checksum: str) -> list[pa.Array]:
    from warehouse.files.memo_file import read_memo_file

    storage = Storage(str(tmp_path / "home"))
    return list(read_memo_file(storage, outcome.path, [outcome.column], checksum).values())


@pytest.mark.slow
def test_known_culprits_do_not_delay_other_components(tmp_path: Path, processes: ChildProcesses) -> None:
    model = made({**healthy(), "bad": scenes.quits(MOOD)})
    home, works = leased(tmp_path, model, hours=2)
    known_culprits = KnownCulprits()
    isolated(works[0], home, processes, LIMITS, known_culprits)
    assert known_culprits.columns == {model.inputs["bad"].fingerprint}
    results = [isolated(work, home, processes, LIMITS, known_culprits) for work in works[1:]]
    assert [sum(one.failure is not None for one in result.outcomes) for result in results] == [1]
    assert [len(result.files) for result in results] == [1]


@pytest.mark.medium
def test_samples_are_not_looked_for_without_end(
    tmp_path: Path, processes: ChildProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where thousands of components fail over a fragment, what is whole beside them waits to be committed."""
    monkeypatch.setattr(memoizing, "_SECS_OF_FRAGMENT", 0.0)
    inputs = {f"bad_{n}": scenes.raises(MOOD.lower()).hash_buckets(10 + n) for n in range(3)}
    result, outcomes = memoized(tmp_path, {**healthy(), **inputs}, processes)
    failures = {name: outcome.failure for name, outcome in outcomes.items() if outcome.failure is not None}
    assert failures.keys() == inputs.keys()
    assert all(failure.error and not failure.events for failure in failures.values())
    assert len(result.files) == 1


def test_changed_data_fails_without_a_sample(tmp_path: Path, processes: ChildProcesses) -> None:
    model = made(healthy())
    home, (work,) = leased(tmp_path, model)
    Path(work.fragment.path).write_bytes(b"not what it was")
    result = isolated(work, home, processes, LIMITS, KnownCulprits())
    failures = [outcome.failure for outcome in result.outcomes]
    assert {failure.kind for failure in failures if failure} == {"data"}
    assert all(failure is not None and failure.sample == "" for failure in failures)


def test_a_disk_that_refuses_is_an_error_here(tmp_path: Path, processes: ChildProcesses) -> None:
    home, (work,) = leased(tmp_path, made(healthy()))
    (tmp_path / "home" / "memos").write_text("a file where the folder should be")
    with pytest.raises(StorageError, match="memos"):
        isolated(work, home, processes, LIMITS, KnownCulprits())


@pytest.mark.slow
def test_a_defect_that_one_component_brings_about_is_its_failure_alone(
    tmp_path: Path, processes: ChildProcesses, caplog: pytest.LogCaptureFixture
) -> None:
    """What it breaks is outside of any operator: writing the file, of which no component is suspected."""

    @scenes.forged
    def breaks_writing(text):
        for kind in object.__subclasses__():
            if kind.__name__ == "MemoFile":
                kind.__init__ = None
        return text

    inputs = {**healthy(), "bad": breaks_writing(MOOD)}
    _, outcomes = memoized(tmp_path, inputs, processes)
    _, sums = undisturbed(tmp_path / "without")
    assert checksums(outcomes, healthy()) == sums
    failure = outcomes["bad"].failure
    assert failure is not None
    assert (failure.kind, failure.exception, failure.sample) == ("defect", "TypeError", "")
    assert re.fullmatch(
        r"TypeError: 'NoneType' object is not callable, at warehouse/files/memo_file.py:\d+ in write_memo_file, called at .*",
        failure.error,
    )
    assert "Traceback (most recent call last)" in caplog.text


@scenes.forged
def depends_on_the_hash_seed(text):
    import pyarrow as pa

    return pa.array([str(hash(each)) for each in text.to_pylist()])


@pytest.mark.slow
def test_what_differs_in_another_process_is_not_committed(tmp_path: Path, processes: ChildProcesses) -> None:
    inputs = {**healthy(), "bad": depends_on_the_hash_seed(MOOD), "good": scenes.raises(hr.text("query"))}
    _, outcomes = memoized(tmp_path, inputs, processes)
    failure = outcomes["bad"].failure
    assert failure is not None
    assert failure.kind == "raised"
    assert "gives other values in another process" in failure.error
    assert [name for name, outcome in outcomes.items() if outcome.failure is not None] == ["bad"]


def test_a_defect_in_every_component_fails_these_only(tmp_path: Path, processes: ChildProcesses) -> None:
    home, (work,) = leased(tmp_path, made(healthy()))
    unspelled = tuple(one._replace(memo_key="é") for one in work.components)  # a key is hexadecimal
    broken = FragmentWork(work.fragment, unspelled, work.output)
    result = isolated(broken, home, processes, LIMITS, KnownCulprits())
    failures = [outcome.failure for outcome in result.outcomes]
    assert [failure.kind for failure in failures if failure] == ["defect"] * len(work.components)
    assert all(failure is not None and "UnicodeEncodeError" in failure.error for failure in failures)


@scenes.forged
def starts_a_process_and_quits(text):
    """Behind the guard's back: it lets the import system do what it must."""
    start = "import subprocess; subprocess.Popen(['sleep', '4321.0625'])"
    exec(compile(start, "<frozen importlib>", "exec"))
    raise SystemExit(7)


@scenes.forged
def starts_a_process_and_loops(text):
    """Behind the guard's back: it lets the import system do what it must."""
    start = "import subprocess; subprocess.Popen(['sleep', '4321.1875'])"
    exec(compile(start, "<frozen importlib>", "exec"))
    while len(text):
        pass
    return text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bad", "kind", "command"),
    [
        (starts_a_process_and_quits, "lost", b"sleep\x004321.0625\x00"),
        (starts_a_process_and_loops, "stalled", b"sleep\x004321.1875\x00"),
    ],
)
def test_what_a_component_starts_ends_with_its_process(
    tmp_path: Path, processes: ChildProcesses, bad: Callable[[hr.Expr], hr.Expr], kind: str, command: bytes
) -> None:
    """Whether the process ends by itself or is killed."""
    _, outcomes = memoized(tmp_path, {"bad": bad(MOOD)}, processes, HASTY, rows=1)
    failure = outcomes["bad"].failure
    assert failure is not None
    assert failure.kind == kind

    def are_gone() -> bool:
        return not any(command_of(folder) == command for folder in Path("/proc").glob("[0-9]*"))

    assert eventually(are_gone, 20.0)


def command_of(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""  # it ended meanwhile
