"""Baselines of the gate: figures by kind of machine and commit, their file, and what got worse. Pure, but for reading what this machine is.

A figure is a ratio in which less is better. Its noise is the range of its values over the rounds. A figure is worse if its median is higher than the baseline's
by more than the greater of both noises, and of :data:`LEAST_NOISE` of the baseline where seconds are measured: a later run meets another moment of the machine.
"""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from transforms.derived_documents import document_of, one_of, read_value, whole
from transforms.documents import Part, parse_document
from transforms.errors import DataError, InputError

FORMAT: Final = 1
#: The least noise of a figure of measured seconds, as a share of the baseline.
LEAST_NOISE: Final = 0.05
COUNTED: Final = "counted"
TIMED: Final = "timed"


@dataclass(frozen=True, slots=True)
class MachineKind:
    """What figures depend on; nothing that identifies a machine.

    Attributes:
        processor: the name of the model of its CPU.
        cores: that this process may use.
        memory_gib: rounded.
    """

    processor: str
    cores: Annotated[int, whole(1)]
    memory_gib: Annotated[int, whole(0)]


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure of some rounds.

    Attributes:
        kind: ``counted``: equal on every machine, such as bytes; ``timed``: of measured seconds.
        ratio: the median over the rounds.
        noise: the greatest value less the least.
        rounds: their number.
    """

    kind: Annotated[str, one_of(COUNTED, TIMED)]
    ratio: float
    noise: float
    rounds: Annotated[int, whole(1)]

    def check_read(self, part: Part) -> None:
        """Raise :class:`DataError` for a ratio that is not positive, and for a negative noise."""
        if not (0 < self.ratio < math.inf and 0 <= self.noise < math.inf):
            raise DataError("a figure must have a ratio > 0 and a noise >= 0", where="baseline", value=f"{self.ratio}, {self.noise}")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Baseline:
    """The figures of a commit on a kind of machine.

    Attributes:
        release: the version that the commit has.
        commit: its hash, 40 hexadecimal digits.
        machine: where they were measured.
        figures: by name.
    """

    release: str
    commit: str
    machine: MachineKind
    figures: Mapping[str, Measured]

    def check_read(self, part: Part) -> None:
        """Raise :class:`DataError` for a commit that is no hash."""
        if len(self.commit) != 40 or not set(self.commit) <= set("0123456789abcdef"):
            raise DataError("a commit must be 40 hexadecimal digits", where="baseline", value=self.commit)


@dataclass(frozen=True, slots=True)
class Baselines:
    """The baselines of a file, the newest last."""

    format: Annotated[int, whole(FORMAT, FORMAT)]
    baselines: tuple[Baseline, ...]

    def newest(self, machine: MachineKind) -> Baseline | None:
        """The newest baseline of a kind of machine."""
        return next((one for one in reversed(self.baselines) if one.machine == machine), None)

    def with_baseline(self, added: Baseline) -> Baselines:
        """These with one more; it replaces one of the same commit and kind of machine."""
        rest = [one for one in self.baselines if (one.commit, one.machine) != (added.commit, added.machine)]
        return Baselines(FORMAT, (*rest, added))


@dataclass(frozen=True, slots=True)
class Compared:
    """A figure beside that of a baseline.

    Attributes:
        name: of the figure.
        now: the figure.
        before: that of the baseline; None: it has none, or none that this machine can be compared with.
        allowed: how far ``now`` may be above ``before``.
    """

    name: str
    now: Measured
    before: Measured | None
    allowed: float

    @property
    def is_worse(self) -> bool:
        """Whether the figure is worse by more than its noise."""
        return self.before is not None and self.now.ratio - self.before.ratio > self.allowed

    @property
    def is_better(self) -> bool:
        """Whether the figure is better by more than its noise."""
        return self.before is not None and self.before.ratio - self.now.ratio > self.allowed


def measured(kind: str, ratios: Sequence[float]) -> Measured:
    """The figure of the ratios of some rounds."""
    return Measured(kind, statistics.median(ratios), max(ratios) - min(ratios), len(ratios))


def compare(now: Mapping[str, Measured], found: Baselines, machine: MachineKind) -> list[Compared]:
    """Each figure beside that of the newest baseline of this kind of machine; without one, counted figures beside the newest of any."""
    own = found.newest(machine)
    any_kind = found.baselines[-1] if found.baselines else None
    compared = []
    for name, one in now.items():
        source = own if own is not None else any_kind if one.kind == COUNTED else None
        before = source.figures.get(name) if source is not None else None
        compared.append(Compared(name, one, before, 0.0 if before is None else allowed_rise(before, one)))
    return compared


def allowed_rise(before: Measured, now: Measured) -> float:
    """How far a figure may rise above its baseline without being worse."""
    least = LEAST_NOISE * before.ratio if TIMED in (before.kind, now.kind) else 1e-9 * before.ratio
    return max(before.noise, now.noise, least)


def read_baselines(text: str | bytes) -> Baselines:
    """The baselines of a file. Raises :class:`DataError` for another document."""
    return read_value(Baselines, parse_document(text, "a file of baselines"))


def baselines_text(found: Baselines) -> str:
    """The text of the file."""
    return json.dumps(document_of(found), indent=1, ensure_ascii=False) + "\n"


def machine_kind(processors: Path = Path("/proc/cpuinfo"), memory: Path = Path("/proc/meminfo")) -> MachineKind:
    """The kind of this machine. Raises :class:`InputError` where the system does not say it."""
    try:
        lines = processors.read_text(encoding="utf-8").splitlines()
        total = next(line for line in memory.read_text(encoding="ascii").splitlines() if line.startswith("MemTotal:"))
    except (OSError, StopIteration) as error:
        raise InputError("the gate needs the kind of the machine", where=str(memory), value=str(error),
                         next_step="run it on Linux") from error  # fmt: skip
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return MachineKind(
        named[0] if named else platform.machine(), len(os.sched_getaffinity(0)), round(int(total.split()[1]) / 2**20)
    )
