"""The differences of two results of one analysis, as text."""

from __future__ import annotations

import json

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from warehouse.files.artifact_differences import artifact_difference

terms = st.lists(st.text(max_size=3), min_size=1, max_size=8, unique=True)


def test_terms_are_added_removed_and_moved() -> None:
    found = artifact_difference("vocabulary_ids", pa.array(["red", "blue", "hat"]), pa.array(["blue", "red", "shoe"]))
    assert (found.added, found.removed, found.moved) == (1, 1, 2)
    assert found.text == "3 -> 3 terms, 1 added ('shoe'), 1 removed ('hat'), 2 with another id"


@given(terms, terms)
def test_terms_that_are_counted_make_the_one_vocabulary_of_the_other(before: list[str], after: list[str]) -> None:
    found = artifact_difference("vocabulary_ids", pa.array(before), pa.array(after))
    assert len(before) + found.added - found.removed == len(after)
    assert (found.added, found.removed, found.moved) == (0, 0, 0) or before != after
    assert before != after or found.text == f"{len(before)} -> {len(after)} terms"


def test_boundaries_and_numbers_say_by_how_much() -> None:
    found = artifact_difference("quantile_buckets", pa.array([1.0, 2.0]), pa.array([1.0, 2.5, 3.0]))
    assert found.text == "2 -> 3 boundaries, 1 moved, by 0.5 at most"
    found = artifact_difference("standardize_over", pa.array([1.0, 2.0]), pa.array([1.5, 2.0]))
    assert found.text == "mean 1 -> 1.5"
    assert found.moved == 1


def test_outputs_of_a_function_are_compared_by_their_graphs() -> None:
    def outputs(**graphs: str) -> pa.Array:
        return pa.array(
            [json.dumps({"output": name, "columns": ["x"], "graph": graph}) for name, graph in graphs.items()]
        )

    found = artifact_difference("preprocessing_output", outputs(a="1", b="1"), outputs(a="1", b="2"))
    assert (found.moved, found.text) == (1, "1 of 2 outputs ('b')")
