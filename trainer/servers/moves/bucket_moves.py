"""The documents of moves of a run in a bucket, which hosts and commands on several machines read and write.

A bucket has no locks. So each state is an object of its own, ``state-00000012.json``, that is created once: a process that goes on although another one has taken its
place cannot replace a later state. A request is named by the training that is asked, and no other training takes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

from trainer.errors import TornCheckpoint
from trainer.servers.moves.move_documents import (
    MOST_BYTES,
    MoveRequest,
    TrainingServers,
    already_asked,
    not_a_request,
    parse_document,
    without_servers,
)
from transforms.errors import Busy, InputError
from warehouse.errors import MissingFile
from warehouse.storage.storage import Storage

_STATE = re.compile(r"state-(\d{8})\.json", re.ASCII)
#: A newer state may take the place of one between its listing and its reading.
_READ_TRIES = 5


class BucketMoves:
    """The documents of the moves of a run; as :class:`~trainer.servers.moves.move_documents.MoveFiles` of a local one.

    Args:
        run_dir: ``gs://bucket/path``.
    """

    def __init__(self, run_dir: str) -> None:
        self._storage = Storage(run_dir)
        self._folder = f"{self._storage.root}/servers"
        self._number, self._training = 0, ""

    @property
    def place(self) -> str:
        """Where the documents are, for people."""
        return self._folder

    @contextmanager
    def offered(self) -> Iterator[None]:
        """While this process takes requests: :meth:`write_state` finds out whether another one does."""
        yield

    def ask(self, request: MoveRequest) -> None:
        """Write a request. Raises :class:`Busy` if there is one that was not taken yet."""
        place = self._request(request.training)
        if not self._storage.create(place, json.dumps(request.to_document()).encode()):
            raise already_asked(place)

    def take_request(self) -> MoveRequest | None:
        """The request to the training whose state was written here, which is removed; None without one. Raises :class:`DataError` for other content."""
        place = self._request(self._training)
        content = self._read(place)
        if content is None or not self._storage.delete(place):
            return None
        try:
            return MoveRequest.read(parse_document(content, place))
        except (TornCheckpoint, InputError) as error:
            raise not_a_request(place, error) from None

    def withdraw(self, request: MoveRequest) -> bool:
        """Remove a request that was not taken yet; whether it was there."""
        place = self._request(request.training)
        try:
            content = self._read(place)
            if content is None or MoveRequest.read(parse_document(content, place)).id != request.id:
                return False
        except (TornCheckpoint, InputError):
            return False
        return self._storage.delete(place)

    def discard_requests(self) -> None:
        """Remove requests to earlier trainings."""
        for name in self._names():
            if name.startswith("request-"):
                self._storage.delete(f"{self._folder}/{name}")

    def write_state(self, state: TrainingServers) -> None:
        """Add a state after the one that was read or written here. Raises :class:`Busy` if another process has added one since."""
        number = self._number + 1
        if not self._storage.create(self._state(number), json.dumps(state.to_document()).encode()):
            raise Busy("the state of the servers must be written by one process at a time", where=self._folder, value=f"a newer state than number {self._number}",
                       next_step="nothing: the job goes on with the process that wrote it")  # fmt: skip
        self._number, self._training = number, state.training
        for earlier in self._numbers():
            if earlier < number - 1:  # the one before stays for a reader that has just listed it
                self._storage.delete(self._state(earlier))

    def read_state(self) -> TrainingServers:
        """The newest state. Raises :class:`NotFound` without one, and :class:`TornCheckpoint` for another document."""
        for _ in range(_READ_TRIES):
            if not (numbers := self._numbers()):
                break
            place = self._state(numbers[-1])
            if (content := self._read(place)) is not None:
                self._number = numbers[-1]
                return TrainingServers.read(parse_document(content, place))
        raise without_servers(self._folder)

    def _numbers(self) -> list[int]:
        return sorted(int(found[1]) for name in self._names() if (found := _STATE.fullmatch(name)))

    def _names(self) -> list[str]:
        return [file.path.rpartition("/")[2] for file in self._storage.entries(self._folder).files]

    def _state(self, number: int) -> str:
        return f"{self._folder}/state-{number:08d}.json"

    def _request(self, training: str) -> str:
        return f"{self._folder}/request-{training}.json"

    def _read(self, place: str) -> bytes | None:
        """The bytes of a document, of which too many are not read; None without it."""
        try:
            with self._storage.open_input(place) as file:
                content: bytes = file.read(MOST_BYTES + 1)
                return content
        except MissingFile:
            return None
