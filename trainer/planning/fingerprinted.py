"""Documents that have a format and the fingerprint of their members, as JSON that is checked when it is read. Pure; no I/O."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from trainer.errors import ConfigError, TornCheckpoint
from trainer.options.document_field import DocumentField

_T = TypeVar("_T")
_MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Fingerprinted(Generic[_T]):
    """A kind of documents.

    Attributes:
        form: the format.
        thing: what a document describes, as errors name it.
        next_step: of errors.
        members: the members of a value's document, which the fingerprint covers.
        read_members: the inverse; raises :class:`ConfigError` and :class:`TornCheckpoint`.
    """

    form: str
    thing: str
    next_step: str
    members: Callable[[_T], dict[str, Any]]
    read_members: Callable[[DocumentField], _T]

    def write(self, value: _T, about: Mapping[str, Any] | None = None) -> bytes:
        """The document of a value; equal values give equal bytes. ``about``: further members."""
        members = self.members(value)
        document = {"format": self.form, "fingerprint": _fingerprint(members), **members, **(about or {})}
        return (json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()

    def fingerprint(self, value: _T) -> str:
        """The identity of a value: the SHA-256 of its members, in hexadecimal."""
        return _fingerprint(self.members(value))

    def read(self, data: bytes, where: str) -> tuple[_T, DocumentField]:
        """The value of a document at ``where``, and the document. Raises :class:`ConfigError` for bytes that are not such a document."""
        document = self._document(data, where)
        try:
            stated = document.at("format").text()
            if stated != self.form:
                raise ConfigError(f"the format of {self.thing} must be one that this release reads", value=stated[:80],
                                  allowed=self.form)  # fmt: skip
            value = self.read_members(document)
            fingerprint, own = document.at("fingerprint").text(), self.fingerprint(value)
            if fingerprint != own:
                raise ConfigError(
                    f"the fingerprint of {self.thing} must be that of the document", value=fingerprint[:64], allowed=own
                )
        except (TornCheckpoint, ConfigError) as error:
            place = error.where if error.where.startswith(where) else f"{where}: {error.where}".removesuffix(": ")
            raise ConfigError(
                error.what, where=place, value=error.value, allowed=error.allowed, next_step=self.next_step
            ) from error
        return value, document

    def _document(self, data: bytes, where: str) -> DocumentField:
        if len(data) > _MOST_BYTES:
            raise ConfigError(f"the document of {self.thing} must be short", where=where, value=f"{len(data)} bytes",
                              allowed=f"<= {_MOST_BYTES}", next_step=self.next_step)  # fmt: skip
        try:
            return DocumentField(json.loads(data.decode("utf-8"), parse_constant=_refuse_constant), where)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"the document of {self.thing} must be JSON in UTF-8", where=where, value=str(error)[:120],
                              next_step=self.next_step) from error  # fmt: skip


def _fingerprint(members: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(members, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")
