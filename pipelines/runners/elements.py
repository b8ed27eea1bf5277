"""How the elements of a job, texts all of them, come into a pipeline and are dealt out to its workers.

Beam's own ``Create`` and ``Reshuffle`` do the same, but the one names its steps by a line of Beam's source, and the
other carries times and panes with pickle. Here every step has a name of ours and every coder is one that any language
reads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.portability import common_urns

_KEY_CHARACTERS = 16


@beam.typehints.with_input_types(bytes)
@beam.typehints.with_output_types(str)
class _Emit(beam.DoFn):
    def __init__(self, elements: Sequence[str]) -> None:
        self._elements = tuple(elements)

    def process(self, element: bytes) -> Iterable[str]:
        return self._elements


@beam.typehints.with_input_types(str)
@beam.typehints.with_output_types(tuple[str, str])
class _KeyByDigest(beam.DoFn):
    """The key is a function of the element: a bundle that is tried again deals its elements out as before."""

    def process(self, element: str) -> Iterable[tuple[str, str]]:
        yield hashlib.sha256(element.encode("utf-8")).hexdigest()[:_KEY_CHARACTERS], element


@beam.typehints.with_input_types(tuple[str, Iterable[str]])
@beam.typehints.with_output_types(str)
class _DropKeys(beam.DoFn):
    def process(self, element: tuple[str, Iterable[str]]) -> Iterable[str]:
        return element[1]


@beam.typehints.with_output_types(str)
class CreateStrings(beam.PTransform):
    """The given texts. They travel in the pipeline itself: nothing is read while it is built, nor when it starts."""

    def __init__(self, elements: Sequence[str]) -> None:
        super().__init__()
        self._elements = elements

    def expand(self, pbegin: Any) -> Any:
        """Impulse, then every text."""
        return pbegin | "Impulse" >> beam.Impulse() | "Emit" >> beam.ParDo(_Emit(self._elements))


@beam.typehints.with_input_types(str)
@beam.typehints.with_output_types(str)
class Redistribute(beam.PTransform):
    """The same texts, dealt out to all workers: what follows is not fused with what stands before.

    Runners see Beam's Reshuffle by its URN, and those that deal out elements by themselves do that instead.
    """

    def expand(self, pcoll: Any) -> Any:
        """Group by a key that hardly two texts share."""
        keyed = pcoll | "KeyByDigest" >> beam.ParDo(_KeyByDigest())
        return keyed | "GroupByKey" >> beam.GroupByKey() | "DropKeys" >> beam.ParDo(_DropKeys())

    def to_runner_api_parameter(self, context: Any) -> tuple[str, None]:
        """What runners know this step as."""
        return common_urns.composites.RESHUFFLE.urn, None
