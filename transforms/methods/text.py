"""What an expression over text offers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transforms.methods.base import Methods

if TYPE_CHECKING:
    from transforms.expression import Expr


class TextMethods(Methods):
    """Text and tokens."""

    __slots__ = ()

    def lower(self) -> Expr:
        """Text in lower case, all of Unicode."""
        return self._apply("lower")

    def normalize(self) -> Expr:
        """Text in Unicode normal form NFKC."""
        return self._apply("normalize")

    def split(self, sep: str) -> Expr:
        """Text cut at every ``sep``; empty pieces are dropped."""
        return self._apply("split", sep=sep)

    def unigrams(self) -> Expr:
        """Text cut at white space."""
        return self._apply("unigrams")

    def ngrams(self, n: int, joiner: str = " ") -> Expr:
        """Every ``n`` tokens in a row, joined."""
        return self._apply("ngrams", n=n, joiner=joiner)

    def char_ngrams(self, n: int) -> Expr:
        """Every ``n`` code points in a row."""
        return self._apply("char_ngrams", n=n)

    def length(self) -> Expr:
        """Code points in a text."""
        return self._apply("length")
