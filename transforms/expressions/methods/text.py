"""Methods of expressions over text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from transforms.expressions.apply import Value
from transforms.expressions.methods.base import Methods
from transforms.operators.signatures import INT64_MAX
from transforms.operators.tokens import ENGLISH_STOP_WORDS


class TextMethods(Methods):
    """Text and tokens."""

    __slots__ = ()

    def lower(self) -> Self:
        """Text in lower case, all of Unicode."""
        return self._apply("lower")

    def upper(self) -> Self:
        """Text in upper case, all of Unicode."""
        return self._apply("upper")

    def normalize(self) -> Self:
        """Text in Unicode normal form NFKC."""
        return self._apply("normalize")

    def split(self, sep: str) -> Self:
        """Text cut at every ``sep``; empty pieces are dropped."""
        return self._apply("split", sep=sep)

    def unigrams(self) -> Self:
        """Text cut at white space."""
        return self._apply("unigrams")

    def ngrams(self, n: int, joiner: str = " ") -> Self:
        """Every ``n`` tokens in a row, joined."""
        return self._apply("ngrams", n=n, joiner=joiner)

    def char_ngrams(self, n: int) -> Self:
        """Every ``n`` code points in a row."""
        return self._apply("char_ngrams", n=n)

    def length(self) -> Self:
        """Code points in a text."""
        return self._apply("length")

    def strip(self, characters: str = "") -> Self:
        """Text without white space, or without any of the ``characters``, at its ends."""
        return self._apply("strip", characters=characters)

    def substring(self, start: int, length: int = INT64_MAX) -> Self:
        """``length`` code points from ``start`` on, or all; a negative start counts from the end."""
        return self._apply("substring", start=start, length=length)

    def replace(self, old: str, new: str) -> Self:
        """Text with every ``old`` replaced by ``new``."""
        return self._apply("replace", old=old, new=new)

    def starts_with(self, prefix: str) -> Self:
        """Whether a text begins with ``prefix``."""
        return self._apply("starts_with", prefix=prefix)

    def ends_with(self, suffix: str) -> Self:
        """Whether a text ends with ``suffix``."""
        return self._apply("ends_with", suffix=suffix)

    def contains(self, text: str) -> Self:
        """Whether ``text`` occurs in a text."""
        return self._apply("contains", text=text)

    def edit_distance(self, other: Self | Value) -> Self:
        """The number of code points to insert, delete or replace to turn one text into the other."""
        return self._apply("edit_distance", other)

    def regex_extract(self, pattern: str, group: int = 0) -> Self:
        """The first match of an RE2 ``pattern``, or a group of it; null without a match."""
        return self._apply("regex_extract", pattern=pattern, group=group)

    def regex_replace(self, pattern: str, replacement: str) -> Self:
        r"""Text with every match of an RE2 ``pattern`` replaced; ``\1`` is its first group."""
        return self._apply("regex_replace", pattern=pattern, replacement=replacement)

    def remove_stop_words(self, words: Sequence[str] = ENGLISH_STOP_WORDS) -> Self:
        """Tokens but for ``words``, by default 33 English ones; a list or tuple."""
        return self._apply("remove_stop_words", words=words)
