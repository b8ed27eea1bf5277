"""What a model's author expects of an input, beside the limits that hold for all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

from transforms.derived_documents import Omitted, document_of, number
from transforms.errors import InputError
from transforms.value_range import ValueRange

_Share = Annotated[float, number(0.0)]


@dataclass(frozen=True, slots=True)
class Expect:
    """The limits of an input for ``headrace checks run``. None leaves the limit of all inputs.

    Attributes:
        values: the range of its numbers.
        empty_share: the greatest share of nulls and empty lists.
        new_share: the greatest share of ids that the range before did not have.
        psi: the greatest population stability index against the range before.
        ks: the greatest Kolmogorov-Smirnov distance of numbers, and of the lengths of lists, to those of the range before.

    Raises :class:`InputError` for a limit that is not a finite number from 0 on, or a share above 1.

    >>> model = Model("ctr", client="search", label="clicked")
    >>> model.input("price", float32("price").fill_null(0), expect=Expect(values=between(0, 1000), empty_share=0.0))
    >>> model.input("age", int64("user_age"), expect=between(0, 120))
    """

    values: Omitted[ValueRange | None] = None
    empty_share: Omitted[_Share | None] = None
    new_share: Omitted[_Share | None] = None
    psi: Omitted[_Share | None] = None
    ks: Omitted[_Share | None] = None

    def __post_init__(self) -> None:
        if self.values is not None and not isinstance(self.values, ValueRange):
            raise InputError("expected values must be a range of numbers", where="values", value=type(self.values).__name__,
                             next_step="values=hr.between(0, 1)")  # fmt: skip
        for name, most in (("empty_share", 1.0), ("new_share", 1.0), ("ks", 1.0), ("psi", math.inf)):
            value = getattr(self, name)
            if value is None:
                continue
            if (
                isinstance(value, bool)
                or not isinstance(value, int | float)
                or not (0 <= value <= most and math.isfinite(value))
            ):
                raise InputError(f"{name} must be a number", where=f"Expect.{name}", value=value,
                                 allowed="0 or more" if most == math.inf else "0 to 1")  # fmt: skip

    def to_document(self) -> dict[str, Any]:
        """The limits that are given."""
        found: dict[str, Any] = document_of(self)
        return found


def expectation_of(given: object, where: str) -> Expect | None:
    """``expect`` of an input: an :class:`Expect`, or a range of its numbers. Raises :class:`InputError`."""
    if isinstance(given, ValueRange):
        return Expect(values=given)
    if given is None or isinstance(given, Expect):
        return given
    raise InputError("an expectation must be a range of numbers or hr.Expect", where=where, value=type(given).__name__,
                     next_step="expect=hr.between(0, 1), or expect=hr.Expect(empty_share=0.1)")  # fmt: skip
