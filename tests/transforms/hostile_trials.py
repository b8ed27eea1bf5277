"""Plans over hostile arrays, in a process that may crash: ``python -m tests.transforms.hostile_trials --help``.

Each trial is one plan over hostile columns. It must refuse them with an error of ours, or give what it gives for the same
values in ordinary arrays, valid text included. A trial is known by its seed and number, which are written to a file before it
begins, so that a trial that kills the process can be repeated.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.support.kept_kernels import with_bounds_checks
from tests.transforms.adversarial import COMPUTABLE, acceptable_types, columns_for, operands_for, operation
from tests.transforms.hostile_arrays import HostileArrays, described, plain
from tests.transforms.operators.parameters import GOLDEN_PARAMS
from transforms import errors
from transforms.execution import plan
from transforms.expressions.expression import concat, text
from transforms.graphs.graph import Artifact, Node
from transforms.kernels.text_validity import check_array
from transforms.operators import Operator
from transforms.types import ColumnType, Dense, DType, Ragged

_ROOT = Path(__file__).resolve().parents[2]
_OURS = {
    name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.HeadraceError)
}
#: How many defects are printed.
_TOLD = 20
_TRACE_BYTES = 100_000


@dataclass(slots=True)
class Tally:
    """The counts of ``arrays`` in ``plans``: ``unmade`` by Arrow, ``refused`` with an error of ours, or ``computed``."""

    plans: int = 0
    arrays: int = 0
    unmade: int = 0
    refused: int = 0
    computed: int = 0
    out_of_bounds: int = 0
    deaths: int = 0
    defects: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Count what another has counted."""
        for name in ("plans", "arrays", "unmade", "refused", "computed", "out_of_bounds", "deaths"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.defects += other.defects


@dataclass(frozen=True, slots=True)
class _Case:
    name: str
    root: Node
    types: tuple[ColumnType, ...]
    artifacts: tuple[ColumnType, ...]


class _Watch:
    """Sees every index that a kernel compiled with bounds checks refuses, even where a plan goes on without it."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._apply_kernel = plan.apply_kernel

    def __call__(self, operator: Operator, *args: Any) -> Any:
        try:
            return self._apply_kernel(operator, *args)
        except IndexError as error:
            self.seen.append(f"{operator.name}: {error}")
            raise


@cache
def _cases_of(position: int) -> list[tuple[dict[str, Any], tuple[ColumnType, ...]]]:
    operator = COMPUTABLE[position]
    cases = []
    for params in GOLDEN_PARAMS.get(operator.name, [{}]):
        bound = operator.bind_params(params)
        for types in acceptable_types(operator, bound):
            lifted = [
                (*types[:i], Ragged(at.dtype), *types[i + 1 :]) for i, at in enumerate(types) if isinstance(at, Dense)
            ]
            cases += [(params, shape) for shape in (types, *lifted) if shape is types or _lifts(operator, shape, bound)]
    return cases


def _lifts(operator: Operator, types: Sequence[ColumnType], params: dict[str, Any]) -> bool:
    try:
        return operator.lifts and operator.lifted(types) is not None and bool(operator.infer(types, params))
    except errors.HeadraceError:
        return False


def _fused(source: random.Random) -> _Case:
    """What several operators in one pass compute."""
    a, b = text("c0"), text("c1")
    roots = {
        "common_words": (a.unigrams() & b.unigrams(), 2),
        "hashed_words": (a.unigrams().hash_buckets(97), 1),
        "hashed_words of salt": (a.unigrams().hash_buckets(97, salt="pepper"), 1),
        "hashes joined": (concat(a.split(","), b.split("a")).hash_buckets(97), 2),
        "lower words": (a.lower().strip().unigrams().ngrams(2), 1),
    }
    name = source.choice(sorted(roots))
    expression, columns = roots[name]
    return _Case(name, expression.node, (Dense(DType.STRING),) * columns, ())


def _case(number: int, source: random.Random) -> _Case:
    position = number % (len(COMPUTABLE) + 3)
    if position >= len(COMPUTABLE):
        return _fused(source)
    operator = COMPUTABLE[position]
    params, types = source.choice(_cases_of(position))
    operands = operands_for(operator, types)
    held = tuple(Dense(operand.type.dtype) for operand in operands if isinstance(operand, Artifact))
    root = operation(operator.name, operands, params)
    columns = tuple(at for at, operand in zip(types, operands, strict=True) if not isinstance(operand, Artifact))
    names = [operand for operand in operands if not isinstance(operand, Artifact)]
    if names != columns_for(columns):  # an artifact in front of a column: columns are named by their place
        return _Case(operator.name, root, types, held)
    return _Case(operator.name, root, columns, held)


def trial(seed: int, number: int, tally: Tally, watch: _Watch) -> None:
    """One plan over hostile arrays; what is wrong goes to ``tally``."""
    source = random.Random(f"{seed} {number}")
    case = _case(number, source)
    hostile = HostileArrays(source, at_end=number // len(COMPUTABLE) % 3 != 2)
    rows, faults, arrays = source.choice([0, 1, 2, 5, 17, 40]), [], []
    for position, column_type in enumerate((*case.types, *case.artifacts)):
        tally.arrays += 1
        try:
            at_artifact = position >= len(case.types)
            arrays.append(
                hostile.draw(column_type, 3, exact=True)
                if at_artifact
                else hostile.draw(column_type, rows, chunked=True)
            )
        except pa.ArrowException:
            tally.unmade += 1
            return
        faults.append(hostile.fault)
    columns, held = arrays[: len(case.types)], arrays[len(case.types) :]
    what = f"seed {seed}, trial {number}, {case.name} over {described(arrays)}, faults {faults}"
    fused = source.random() < 0.8
    found = _outcome(case, columns, held, fused, what, tally)
    if watch.seen:
        tally.out_of_bounds += len(watch.seen)
        tally.defects.append(f"{what}: {watch.seen}")
        watch.seen.clear()
    if found is None:
        tally.refused += len(arrays)
        if not any(faults) and _outcome(case, _plain(columns), _plain(held), fused, what, tally) is not None:
            tally.defects.append(f"{what}: sound arrays refused")
        return
    tally.computed += len(arrays)
    _check_output(found, what, tally)
    if found != _outcome(case, _plain(columns), _plain(held), fused, what, tally):
        tally.defects.append(f"{what}: another result than of the same values in ordinary arrays")


def _plain(arrays: Sequence[pa.Array | pa.ChunkedArray]) -> list[pa.Array]:
    return [plain(array) for array in arrays]


def _outcome(
    case: _Case, columns: Sequence[Any], held: Sequence[Any], fused: bool, what: str, tally: Tally
) -> tuple[str, bytes] | None:
    """(the failure's text, the output as Arrow's stream), or None for columns that were refused."""
    try:
        compiled = plan.compile_plan({"it": case.root}, lambda digest: held[0], fused=fused)
        result = compiled.run(pa.table({f"c{i}": array for i, array in enumerate(columns)}))
    except errors.HeadraceError:
        return None
    except Exception as error:  # anything else is what this looks for
        tally.defects.append(f"{what}: raised {type(error).__name__}: {error}")
        return None
    for failure in result.failures.values():
        if failure.exceptions[0] not in _OURS:
            tally.defects.append(f"{what}: failed with {failure.error}")
        return failure.error, b""
    return "", _stream(result.columns["it"])


def _stream(array: pa.Array) -> bytes:
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([array], names=["it"])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _check_output(found: tuple[str, bytes], what: str, tally: Tally) -> None:
    if not found[1]:
        return
    output = pa.ipc.open_stream(found[1]).read_all().column(0)
    try:
        output.validate(full=True)
        check_array(output)
    except (pa.ArrowInvalid, errors.HeadraceError) as error:
        tally.defects.append(f"{what}: the output is not valid: {error}")


def run_here(seed: int, numbers: Sequence[int], trace: Path | None) -> Tally:
    """The trials of these numbers in this process."""
    tally, watch = Tally(), _Watch()
    plan.apply_kernel = watch  # type: ignore[assignment]
    file = None if trace is None else os.open(trace, os.O_WRONLY | os.O_CREAT, 0o644)
    for number in numbers:
        if file is not None:
            os.pwrite(file, json.dumps({**asdict(tally), "number": number}).ljust(_TRACE_BYTES).encode(), 0)
        try:
            trial(seed, number, tally, watch)
        except Exception as error:
            tally.defects.append(f"seed {seed}, trial {number}: {type(error).__name__}: {error}")
        tally.plans += 1
        if len(tally.defects) > _TOLD:
            tally.defects = [*tally.defects[:_TOLD], "and more"]
    return tally


def run_apart(seed: int, first: int, count: int, folder: Path, *, bounds_checked: bool) -> Tally:
    """The trials ``first`` and following in child processes; each that dies is counted, and the next one goes on behind it."""
    whole, trace = Tally(), folder / f"trial-{seed}-{first}"
    environment = dict(os.environ, PYTHONPATH=str(_ROOT), MALLOC_PERTURB_="165")
    if bounds_checked:
        environment = with_bounds_checks(environment)
    end = first + count
    while first < end:
        command = [
            sys.executable,
            "-m",
            __name__,
            "--seed",
            str(seed),
            "--first",
            str(first),
            "--count",
            str(end - first),
        ]
        done = subprocess.run(
            [*command, "--trace", str(trace)], env=environment, cwd=_ROOT, capture_output=True, text=True
        )
        if done.returncode == 0:
            found = json.loads(done.stdout.splitlines()[-1])
            whole.add(Tally(**found))
            break
        before = json.loads(trace.read_text())
        number = before.pop("number")
        how = signal.Signals(-done.returncode).name if done.returncode < 0 else f"status {done.returncode}"
        whole.add(Tally(**before))
        whole.add(Tally(plans=1, deaths=1, defects=[f"seed {seed}, trial {number}: {how}\n{_said(done.stderr)}"]))
        first = number + 1
    return whole


def _said(text: str) -> str:
    """What Python wrote of the death, without the list of all that it had loaded."""
    return text[text.find("Fatal Python error") :].partition("Extension modules")[0][-3000:]


def main() -> None:
    """Run trials here and print their counts, the last line as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first trial")
    parser.add_argument("--count", type=int, default=1, help="how many trials")
    parser.add_argument("--trace", type=Path, help="the file that the number of each trial goes to before it begins")
    given = parser.parse_args()
    faulthandler.enable()
    tally = run_here(given.seed, range(given.first, given.first + given.count), given.trace)
    print(json.dumps(asdict(tally)))


if __name__ == "__main__":
    main()
