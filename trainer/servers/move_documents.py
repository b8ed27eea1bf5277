"""What a user asks of a running training, and what the training says of it: documents in files of the run. Strict when read."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.document_field import DocumentField
from trainer.embedding.ps.engine_move import MoveFigures, MoveStage
from trainer.errors import ConfigError, TornCheckpoint
from trainer.flight.addresses import Address
from trainer.planning.plan import PartitionPlan
from trainer.planning.plan_document import plan_at, plan_members
from trainer.runs.lock import run_lock
from transforms.errors import Busy, DataError, HeadraceError, InputError, NotFound

_LOG = logging.getLogger(__name__)
_FORMAT = 1
#: The most servers of a run.
MOST_SERVERS = 4096
_MOST_BYTES = 64 << 20
#: A process that asks whether the folder is locked has it for a moment.
_LOCK_TRIES, _LOCK_WAIT_SECS = 20, 0.05
_ID = re.compile(r"[0-9a-f]{16}", re.ASCII)
_PROBLEM = ("what", "where", "value", "allowed", "next_step")


def new_id() -> str:
    """A new name of a training or of a request."""
    return secrets.token_hex(8)


@dataclass(frozen=True, slots=True)
class MoveRequest:
    """A request to move the tables of a running training to other servers.

    Attributes:
        id: its name.
        training: the name of the training that is asked.
        servers: their addresses; a number: so many that the training starts on its machine.
        plan: where the tables stand on them; None: rows are spread over them.
    """

    id: str
    training: str
    servers: tuple[Address, ...] | int
    plan: PartitionPlan | None = None

    def __post_init__(self) -> None:
        if isinstance(self.servers, tuple) and len(set(self.servers)) != len(self.servers):
            raise InputError(
                "the addresses of servers must be different", where="--servers", value=", ".join(map(str, self.servers))
            )
        if self.plan is not None and self.plan.cores != self.count:
            raise InputError("a plan must have a core for each server", where="--plan, --servers", value=f"{self.plan.cores} cores",
                             allowed=str(self.count), next_step=f"headrace plan make MODEL --topology ps:{self.count} --output FILE")  # fmt: skip

    @property
    def count(self) -> int:
        """The number of servers."""
        return self.servers if isinstance(self.servers, int) else len(self.servers)

    def to_document(self) -> dict[str, Any]:
        """The JSON object."""
        return {
            "format": _FORMAT,
            "id": self.id,
            "training": self.training,
            "servers": self.servers if isinstance(self.servers, int) else list(map(str, self.servers)),
            "plan": None if self.plan is None else plan_members(self.plan),
        }

    @classmethod
    def read(cls, field: DocumentField) -> MoveRequest:
        """The request at ``field``. Raises :class:`TornCheckpoint` and :class:`InputError`."""
        of = _members(field, {"format", "id", "training", "servers", "plan"})
        return cls(_id(of["id"]), _id(of["training"]), _servers(of["servers"]), _plan(of["plan"]))


@dataclass(frozen=True, slots=True)
class MoveReport:
    """What a training says of a move.

    Attributes:
        id: the name of the request.
        figures: what was copied.
        problem: why it was given up, as the attributes of an error; empty otherwise.
    """

    id: str
    figures: MoveFigures
    problem: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """Whether the move has ended."""
        return self.figures.stage in (MoveStage.DONE, MoveStage.GIVEN_UP)

    def to_document(self) -> dict[str, Any]:
        """The JSON object."""
        return {
            "id": self.id,
            "figures": {**dataclasses.asdict(self.figures), "stage": str(self.figures.stage)},
            "problem": dict(self.problem),
        }

    @classmethod
    def read(cls, field: DocumentField) -> MoveReport:
        """The report at ``field``. Raises :class:`TornCheckpoint`."""
        of = _members(field, {"id", "figures", "problem"})
        figures = _members(of["figures"], {one.name for one in dataclasses.fields(MoveFigures)})
        stage, problem = figures["stage"].text(), of["problem"].members()
        if stage not in tuple(MoveStage) or not problem.keys() <= set(_PROBLEM):
            raise TornCheckpoint("a report of a move must have a stage and a problem", where=field.place, value=stage[:80],
                                 allowed=", ".join(MoveStage))  # fmt: skip
        copied, passes, pause = (figures[name].count() for name in ("copied_rows", "passes", "pause_rows"))
        pause_secs, secs = (figures[name].number() for name in ("pause_secs", "secs"))
        return cls(
            _id(of["id"]),
            MoveFigures(MoveStage(stage), copied, passes, pause, pause_secs, secs),
            {name: one.text() for name, one in problem.items()},
        )


def problem_of(error: BaseException) -> dict[str, str]:
    """An error as the problem of a report."""
    if not isinstance(error, HeadraceError):
        return {"what": f"{type(error).__name__}: {error}"[:1000]}
    return {name: str(getattr(error, name))[:1000] for name in _PROBLEM if getattr(error, name) not in (None, "")}


@dataclass(frozen=True, slots=True)
class TrainingServers:
    """The servers of a running training.

    Attributes:
        training: its name, another one for each process.
        servers: the addresses of its servers.
        are_local: the training has started them.
        plan: where the tables stand on them; None: rows are spread over them.
        move: the newest move; None before the first one.
        run: the number with which it has the servers; see :class:`~trainer.servers.run_servers.RunServers`.
    """

    training: str
    servers: tuple[Address, ...]
    are_local: bool = False
    plan: PartitionPlan | None = None
    move: MoveReport | None = None
    run: int = 0

    def to_document(self) -> dict[str, Any]:
        """The JSON object."""
        return {
            "format": _FORMAT,
            "training": self.training,
            "servers": list(map(str, self.servers)),
            "are_local": self.are_local,
            "plan": None if self.plan is None else plan_members(self.plan),
            "move": None if self.move is None else self.move.to_document(),
            "run": self.run,
        }

    @classmethod
    def read(cls, field: DocumentField) -> TrainingServers:
        """The servers at ``field``. Raises :class:`TornCheckpoint`."""
        of = _members(field, {"format", "training", "servers", "are_local", "plan", "move", "run"})
        servers = _servers(of["servers"])
        if isinstance(servers, int):
            raise TornCheckpoint(
                "the servers of a training must be addresses", where=of["servers"].place, value=servers
            )
        move = None if of["move"].value is None else MoveReport.read(of["move"])
        run = of["run"].count(most=1 << 62)
        try:
            plan = _plan(of["plan"])
        except ConfigError as error:
            raise TornCheckpoint(error.what, where=of["plan"].place, value=error.value) from None
        if plan is not None and plan.cores != len(servers):
            raise TornCheckpoint("a plan must have a core for each server", where=of["plan"].place, value=plan.cores,
                                 allowed=str(len(servers)))  # fmt: skip
        return cls(_id(of["training"]), servers, _flag(of["are_local"]), plan, move, run)


@dataclass(frozen=True, slots=True)
class MoveFiles:
    """The files of the moves of a run.

    Attributes:
        folder: of the files.
    """

    folder: Path

    @classmethod
    def of_run(cls, run_dir: str | Path) -> MoveFiles:
        """Those of a run directory."""
        return cls(Path(run_dir) / "servers")

    @contextmanager
    def offered(self) -> Iterator[None]:
        """While this process takes requests. Raises :class:`Busy` if another one does."""
        with ExitStack() as stack:
            for left in reversed(range(_LOCK_TRIES)):
                try:
                    stack.enter_context(run_lock(self.folder, "folder of moves"))
                    break
                except Busy:
                    if not left:
                        raise
                    time.sleep(_LOCK_WAIT_SECS)
            yield

    @property
    def request(self) -> Path:
        """The request that the training has not taken yet."""
        return self.folder / "request.json"

    @property
    def state(self) -> Path:
        """The servers of the training, and its newest move."""
        return self.folder / "state.json"

    def ask(self, request: MoveRequest) -> None:
        """Write a request. Raises :class:`Busy` if there is one that was not taken yet."""
        new = self.folder / f"request-{request.id}.new"
        new.write_text(json.dumps(request.to_document()))
        try:
            os.link(new, self.request)
        except FileExistsError:
            raise Busy("a training must take one request after the other", where=str(self.request),
                       next_step="wait until the other move has ended") from None  # fmt: skip
        finally:
            new.unlink()

    def take_request(self) -> MoveRequest | None:
        """The request, whose file is removed; None without one. Raises :class:`DataError` for a file that is none."""
        if not self.request.exists():
            return None
        try:
            return MoveRequest.read(_document(self.request))
        except (TornCheckpoint, InputError) as error:
            raise DataError("a request to move tables must be one of headrace ps move", where=str(self.request),
                            value=f"{error.what}: {error.value}"[:200]) from None  # fmt: skip
        finally:
            self.request.unlink(missing_ok=True)

    def withdraw(self, request: MoveRequest) -> bool:
        """Remove a request that was not taken yet; whether it was there."""
        try:
            if MoveRequest.read(_document(self.request)).id != request.id:
                return False
            self.request.unlink()
        except (TornCheckpoint, InputError, FileNotFoundError):
            return False
        return True

    def ask_to_leave(self, server: str, training: str) -> None:
        """Write a preemption notice for a server, such as s1, which the training takes."""
        new = self.folder / f"{server}-{new_id()}.new"
        new.write_text(json.dumps({"format": _FORMAT, "training": training, "server": server}))
        new.replace(self.folder / f"notice-{server}.json")

    def take_notices(self, training: str) -> tuple[str, ...]:
        """The names of servers in notices for a training. Their files are removed, also those of others."""
        found = []
        for path in sorted(self.folder.glob("notice-*.json")):
            try:
                of = _members(_document(path), {"format", "training", "server"})
                if of["training"].text() == training:
                    found.append(of["server"].text())
            except TornCheckpoint as error:
                _LOG.warning("a preemption notice was not taken: %s (%s)", error.what, error.where)
            finally:
                path.unlink(missing_ok=True)
        return tuple(found)

    def write_state(self, state: TrainingServers) -> None:
        """Replace the state."""
        new = self.state.with_suffix(".new")
        new.write_text(json.dumps(state.to_document()))
        new.replace(self.state)

    def read_state(self) -> TrainingServers:
        """The state. Raises :class:`NotFound` without one, and :class:`TornCheckpoint` for another document."""
        try:
            return TrainingServers.read(_document(self.state))
        except FileNotFoundError:
            raise NotFound("a run must have been trained on servers in one process", where=str(self.state),
                           next_step="headrace train MODEL --servers HOST:PORT,…") from None  # fmt: skip


def _document(path: Path) -> DocumentField:
    try:
        with open(path, "rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise ValueError("it is too long")
        return DocumentField(json.loads(content), path.name)
    except (ValueError, RecursionError) as error:
        raise TornCheckpoint(
            "a document of a move must be a JSON object", where=str(path), value=str(error)[:200]
        ) from None


def _members(field: DocumentField, names: set[str]) -> dict[str, DocumentField]:
    found = field.members()
    if found.keys() != names:
        raise TornCheckpoint("a document of a move must have its members", where=field.place, value=str(sorted(found))[:200],
                             allowed=", ".join(sorted(names)))  # fmt: skip
    if "format" in names and found["format"].count() != _FORMAT:
        raise TornCheckpoint("the format of a document must be one that this release reads", where=field.place,
                             value=found["format"].value, allowed=str(_FORMAT),
                             next_step="use the same release of Headrace as the training")  # fmt: skip
    return found


def _id(field: DocumentField) -> str:
    found = field.text()
    if not _ID.fullmatch(found):
        raise TornCheckpoint("a name must be 16 hexadecimal digits", where=field.place, value=found[:80])
    return found


def _plan(field: DocumentField) -> PartitionPlan | None:
    return None if field.value is None else plan_at(field)


def _flag(field: DocumentField) -> bool:
    if not isinstance(field.value, bool):
        raise TornCheckpoint("a document's value must be a boolean", where=field.place, value=repr(field.value)[:80])
    return field.value


def _servers(field: DocumentField) -> tuple[Address, ...] | int:
    if not isinstance(field.value, list):
        found = field.count(most=MOST_SERVERS)
        if not found:
            raise TornCheckpoint("servers must be at least one", where=field.place, value=found)
        return found
    texts = field.texts()
    if not 1 <= len(texts) <= MOST_SERVERS:
        raise TornCheckpoint("servers must be few", where=field.place, value=len(texts), allowed=f"1 to {MOST_SERVERS}")
    try:
        return tuple(Address.parse(one) for one in texts)
    except (InputError, ConfigError) as error:
        raise TornCheckpoint("servers must be addresses", where=field.place, value=str(error.value)[:80]) from None
