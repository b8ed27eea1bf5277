"""The training option ``sequences``: which inputs keep the order of their ids, and what makes one vector of an event's ids."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NoReturn

from trainer.options.checks import check_known, refuse_option

#: The mean of the rows; attention from a target (Zhou et al., 2018); causal self-attention (Kang and McAuley, 2018).
ENCODERS = ("mean", "din", "sasrec")
#: Longer sequences have no use for quadratic attention.
MOST_LENGTH = 4096
_MOST_WIDTH, _MOST_LAYERS = 1 << 16, 64
#: The members that one encoder alone has.
_OWN_MEMBERS = {"hidden": "din", "softmax": "din", "heads": "sasrec", "layers": "sasrec", "dropout": "sasrec"}


@dataclass(frozen=True, slots=True)
class SequenceOptions:
    """How the last ids of an input become one vector of an event.

    Attributes:
        length: the most ids that are taken of an event, its last ones.
        encoder: one of :data:`ENCODERS`.
        target: the input of the candidate item, whose table the sequence shares; of "din" also the one that attends. "": none.
        gaps: an input with as many ids of an event, such as buckets of ages, whose rows are added to those of the sequence. "": none.
        hidden: of "din", the hidden widths of the activation unit.
        softmax: of "din", whether weights of an event add up to 1; by default they do not, as in the paper.
        heads, layers: of "sasrec", the heads and the blocks.
        dropout: of "sasrec", in [0, 1): after the positions and in each block.
    """

    length: int
    encoder: str
    target: str = ""
    gaps: str = ""
    hidden: tuple[int, ...] = (36,)
    softmax: bool = False
    heads: int = 1
    layers: int = 2
    dropout: float = 0.0

    @classmethod
    def read(cls, name: str, document: object) -> SequenceOptions:
        """The options of an object by name, or options that were read. Raises :class:`~trainer.errors.ConfigError`."""
        where = f"sequences[{name!r}]"
        if isinstance(document, cls):
            return document
        if not isinstance(document, Mapping):
            _refuse(where, document, "an object of options")
        check_known(document, [one.name for one in fields(cls)], where=where, of="a sequence")
        for needed in ("length", "encoder"):
            if needed not in document:
                _refuse(where, dict(document), f"an object with {needed}")
        found = cls(**{member: _checked(where, member, document[member]) for member in document})
        for member, encoder in _OWN_MEMBERS.items():
            if member in document and found.encoder != encoder:
                _refuse(f"{where}.{member}", document[member], f"absent unless encoder is {encoder}")
        if found.encoder == "din" and not found.target:
            _refuse(
                f"{where}.target", found.target, "the name of an input with encoder din, which attends to the sequence"
            )
        if name in (found.target, found.gaps) or (found.gaps and found.gaps == found.target):
            _refuse(where, dict(document), "an object whose target and gaps are two other inputs")
        return found

    def to_document(self) -> dict[str, Any]:
        """The options that differ from the defaults, with length and encoder."""
        given = {one.name: value for one in fields(self) if (value := getattr(self, one.name)) != one.default}
        return {**given, **({"hidden": list(self.hidden)} if "hidden" in given else {})}


def read_sequences(option: object) -> dict[str, SequenceOptions]:
    """The options of all sequences by the name of their input. Raises :class:`~trainer.errors.ConfigError`."""
    if not isinstance(option, Mapping):
        _refuse("sequences", option, "an object by name of an input")
    found = {name: SequenceOptions.read(name, option[name]) for name in sorted(option)}
    used: dict[str, str] = {}
    for name, one in found.items():
        if one.target in found:
            _refuse(f"sequences[{name!r}].target", one.target, "an input that is no sequence")
        for other in (name, one.gaps):
            if other and used.setdefault(other, name) != name:
                _refuse(f"sequences[{name!r}]", other, "an object whose input and gaps no other sequence has")
    for name, one in found.items():
        if one.target in used:
            _refuse(f"sequences[{name!r}].target", one.target, "an input that is not the gaps of a sequence")
    return found


def _checked(where: str, member: str, value: Any) -> Any:
    place = f"{where}.{member}"
    match member:
        case "length" | "heads" | "layers":
            _check_count(place, value, {"length": MOST_LENGTH, "heads": _MOST_WIDTH, "layers": _MOST_LAYERS}[member])
        case "encoder":
            if value not in ENCODERS:
                _refuse(place, value, f"one of {', '.join(ENCODERS)}")
        case "target" | "gaps":
            if not isinstance(value, str):
                _refuse(place, value, "the name of an input")
        case "hidden":
            if not isinstance(value, (list, tuple)) or not value:
                _refuse(place, value, "a list of widths")
            for width in value:
                _check_count(place, width, _MOST_WIDTH)
            return tuple(value)
        case "softmax":
            if not isinstance(value, bool):
                _refuse(place, value, "true or false")
        case "dropout":
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
            if not is_number or not 0 <= value < 1:
                _refuse(place, value, "a number in [0, 1)")
    return value


def _check_count(place: str, value: object, most: int) -> None:
    if type(value) is not int or not 1 <= value <= most:
        _refuse(place, value, f"an integer in [1, {most:,}]")


def _refuse(where: str, value: Any, allowed: str) -> NoReturn:
    refuse_option(where, value, allowed, "docs/sequences.md")
