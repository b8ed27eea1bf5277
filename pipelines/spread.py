"""Elements handed out to whatever workers there are.

A runner fuses steps that follow each other, and one worker would do all that came out of the first. Grouping cuts them
apart. Beam's ``Reshuffle`` groups too, but carries panes and timestamps through coders that pickle; here every coder is
that of text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import apache_beam as beam


class Spread(beam.PTransform):
    """The same elements, ``"<key> <rest>"`` each, redistributed by key: no two elements share one."""

    def expand(self, elements: Any) -> Any:
        """Group by key, and forget the key."""
        return (
            elements
            | "Key" >> beam.Map(_keyed).with_input_types(str).with_output_types(tuple[str, str])
            | "Group" >> beam.GroupByKey()
            | "Unkey" >> beam.FlatMap(_values).with_input_types(tuple[str, Iterable[str]]).with_output_types(str)
        )


def _keyed(element: str) -> tuple[str, str]:
    return element.partition(" ")[0], element


def _values(group: tuple[str, Iterable[str]]) -> Iterable[str]:
    return group[1]
