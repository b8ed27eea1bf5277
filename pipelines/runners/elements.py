"""Create a job's elements, which are strings, and redistribute them to its workers.

Beam's ``Create`` and ``Reshuffle`` do the same, but ``Create`` names its steps by a line of Beam's source, and
``Reshuffle`` pickles times and panes. Here every step has a fixed name and every coder is one of all languages.
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
    """The key depends on the element only, so a retried bundle redistributes its elements as before."""

    def process(self, element: str) -> Iterable[tuple[str, str]]:
        yield hashlib.sha256(element.encode("utf-8")).hexdigest()[:_KEY_CHARACTERS], element


@beam.typehints.with_input_types(tuple[str, Iterable[str]])
@beam.typehints.with_output_types(str)
class _DropKeys(beam.DoFn):
    def process(self, element: tuple[str, Iterable[str]]) -> Iterable[str]:
        return element[1]


@beam.typehints.with_output_types(str)
class CreateStrings(beam.PTransform):
    """The given strings. They are part of the pipeline: nothing is read while it is built or started."""

    def __init__(self, elements: Sequence[str]) -> None:
        super().__init__()
        self._elements = elements

    def expand(self, pbegin: Any) -> Any:
        """Impulse, then every string."""
        return pbegin | "Impulse" >> beam.Impulse() | "Emit" >> beam.ParDo(_Emit(self._elements))


@beam.typehints.with_input_types(str)
@beam.typehints.with_output_types(str)
class Redistribute(beam.PTransform):
    """The same strings, redistributed to all workers: the next step is not fused with the previous one.

    It has the URN of Beam's Reshuffle, so a runner with its own implementation of that uses it.
    """

    def expand(self, pcoll: Any) -> Any:
        """Group by an almost unique key."""
        keyed = pcoll | "KeyByDigest" >> beam.ParDo(_KeyByDigest())
        return keyed | "GroupByKey" >> beam.GroupByKey() | "DropKeys" >> beam.ParDo(_DropKeys())

    def to_runner_api_parameter(self, context: Any) -> tuple[str, None]:
        """The URN by which runners identify this step."""
        return common_urns.composites.RESHUFFLE.urn, None
