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
from typing import Annotated, Any

from trainer.errors import ConfigError, TornCheckpoint
from trainer.options.document_field import STRICT, DocumentField
from trainer.planning.plan import PartitionPlan
from trainer.planning.plan_document import plan_at, plan_members
from trainer.run.progress.lock import run_lock
from trainer.servers.moves.engine_move import MoveFigures, MoveStage
from trainer.tables.routes.servers.named_servers import MOST_SERVERS, ServerAddresses, read_addresses
from trainer.wire.flight.addresses import Address
from transforms.derived_documents import Form, document_of, whole
from transforms.documents import Part
from transforms.errors import Busy, DataError, HeadraceError, InputError, NotFound

_LOG = logging.getLogger(__name__)
_FORMAT = 1
#: The longest document that is read.
MOST_BYTES = 64 << 20
#: A process that asks whether the folder is locked has it for a moment.
_LOCK_TRIES, _LOCK_WAIT_SECS = 20, 0.05
_ID = re.compile(r"[0-9a-f]{16}", re.ASCII)
_PROBLEM = ("what", "where", "value", "allowed", "next_step")


def new_id() -> str:
    """A new name of a training or of a request."""
    return secrets.token_hex(8)


def _read_id(part: Part) -> str:
    found = part.text()
    if not _ID.fullmatch(found):
        raise part.refused("16 hexadecimal digits")
    return found


def _read_wanted(part: Part) -> tuple[Address, ...] | int:
    return read_addresses(part) if isinstance(part.value, list) else part.integer(1, MOST_SERVERS)


def _read_plan(part: DocumentField) -> PartitionPlan | None:
    try:
        return None if part.value is None else plan_at(part)
    except ConfigError as error:
        raise part.refused_by(error) from None


def _read_problem(part: DocumentField) -> dict[str, str]:
    return {name: one.text() for name, one in part.fields((), _PROBLEM).members().items()}


_Id = Annotated[str, _read_id]
_Plan = Annotated[PartitionPlan | None, Form(_read_plan, lambda plan: None if plan is None else plan_members(plan))]
_Wanted = Annotated[
    tuple[Address, ...] | int,
    Form(_read_wanted, lambda servers: servers if isinstance(servers, int) else list(map(str, servers))),
]


@dataclass(frozen=True, slots=True)
class MoveRequest:
    """A request to move the tables of a running training to other servers.

    Attributes:
        id: its name.
        training: the name of the training that is asked.
        servers: their addresses; a number: so many that the training starts on its machine.
        plan: the placement of the tables on them; None: rows are spread over them.
    """

    id: _Id
    training: _Id
    servers: _Wanted
    plan: _Plan = None

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
        return {"format": _FORMAT, **document_of(self)}

    @classmethod
    def read(cls, field: DocumentField) -> MoveRequest:
        """The request at ``field``. Raises :class:`TornCheckpoint`."""
        return STRICT.read(cls, _of_this_format(field), extra=("format",))


@dataclass(frozen=True, slots=True)
class MoveReport:
    """What a training says of a move.

    Attributes:
        id: the name of the request.
        figures: what was copied.
        problem: why it was given up, as the attributes of an error; empty otherwise.
    """

    id: _Id
    figures: MoveFigures
    problem: Annotated[Mapping[str, str], _read_problem] = dataclasses.field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """Whether the move has ended."""
        return self.figures.stage in (MoveStage.DONE, MoveStage.GIVEN_UP)


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
        plan: the placement of the tables on them; None: rows are spread over them.
        move: the newest move; None before the first one.
        run: the number with which it has the servers; see :class:`~trainer.servers.run_servers.RunServers`.
    """

    training: _Id
    servers: ServerAddresses
    are_local: bool = False
    plan: _Plan = None
    move: MoveReport | None = None
    run: Annotated[int, whole(most=1 << 62)] = 0

    def check_read(self, part: DocumentField) -> None:
        """Raise :class:`TornCheckpoint` for a plan of another number of servers."""
        if self.plan is not None and self.plan.cores != len(self.servers):
            raise TornCheckpoint("a plan must have a core for each server", where=part.at("plan").place, value=self.plan.cores,
                                 allowed=str(len(self.servers)))  # fmt: skip

    def to_document(self) -> dict[str, Any]:
        """The JSON object."""
        return {"format": _FORMAT, **document_of(self)}

    @classmethod
    def read(cls, field: DocumentField) -> TrainingServers:
        """The servers at ``field``. Raises :class:`TornCheckpoint`."""
        return STRICT.read(cls, _of_this_format(field), extra=("format",))


@dataclass(frozen=True, slots=True)
class _Notice:
    """A preemption notice of a server of a training."""

    training: str
    server: str


@dataclass(frozen=True, slots=True)
class MoveFiles:
    """The files of the moves of a run.

    Attributes:
        folder: of the files.
    """

    folder: Path

    @classmethod
    def of_run(cls, run_dir: str | Path) -> MoveFiles:
        """The files of a run directory."""
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
    def place(self) -> str:
        """Where the files are, for people."""
        return str(self.folder)

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
            raise already_asked(str(self.request)) from None
        finally:
            new.unlink()

    def take_request(self) -> MoveRequest | None:
        """The request, whose file is removed; None without one. Raises :class:`DataError` for a file with other content."""
        if not self.request.exists():
            return None
        try:
            return MoveRequest.read(_document(self.request))
        except (TornCheckpoint, InputError) as error:
            raise not_a_request(str(self.request), error) from None
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

    def discard_requests(self) -> None:
        """Remove a request to an earlier training."""
        self.request.unlink(missing_ok=True)

    def ask_to_leave(self, server: str, training: str) -> None:
        """Write a preemption notice for a server, such as s1, which the training takes."""
        new = self.folder / f"{server}-{new_id()}.new"
        new.write_text(json.dumps({"format": _FORMAT, **document_of(_Notice(training, server))}))
        new.replace(self.folder / f"notice-{server}.json")

    def take_notices(self, training: str) -> tuple[str, ...]:
        """The names of servers in notices for a training. Their files are removed, also those of others."""
        found = []
        for path in sorted(self.folder.glob("notice-*.json")):
            try:
                notice = STRICT.read(_Notice, _of_this_format(_document(path)), extra=("format",))
                if notice.training == training:
                    found.append(notice.server)
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
            raise without_servers(str(self.state)) from None


def _document(path: Path) -> DocumentField:
    with open(path, "rb") as file:
        return parse_document(file.read(MOST_BYTES + 1), str(path))


def parse_document(content: bytes, where: str) -> DocumentField:
    """The JSON document at ``where``. Raises :class:`TornCheckpoint` for more than :data:`MOST_BYTES` and for other content."""
    try:
        if len(content) > MOST_BYTES:
            raise ValueError("it is too long")
        return DocumentField(json.loads(content), where.rpartition("/")[2])
    except (ValueError, RecursionError) as error:
        raise TornCheckpoint(
            "a document of a move must be a JSON object", where=where, value=str(error)[:200]
        ) from None


def already_asked(where: str) -> Busy:
    """The error of a request beside one that was not taken yet."""
    return Busy("an earlier move request is not finished yet", where=where,
                next_step="wait until the other move has ended")  # fmt: skip


def not_a_request(where: str, error: HeadraceError) -> DataError:
    """The error of a request with other content."""
    return DataError("a request to move tables must be one of headrace ps move", where=where,
                     value=f"{error.what}: {error.value}"[:200])  # fmt: skip


def without_servers(where: str) -> NotFound:
    """The error of a run without a state of its servers."""
    return NotFound("a run must have been trained on servers", where=where,
                    next_step="headrace train MODEL --servers HOST:PORT,…")  # fmt: skip


def _of_this_format(field: DocumentField) -> DocumentField:
    if field.at("format").count() != _FORMAT:
        raise TornCheckpoint("the format of a document must be one that this release reads", where=field.place,
                             value=field.at("format").value, allowed=str(_FORMAT),
                             next_step="use the same release of Headrace as the training")  # fmt: skip
    return field
