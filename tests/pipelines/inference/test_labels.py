"""Which columns may be a label, and the expression of each."""

from __future__ import annotations

import pytest

from pipelines.inference.labels import label_expression
from pipelines.log_schemas.columns import LogColumn
from transforms.types import DType


@pytest.mark.parametrize(
    ("kind", "name", "values", "expected"),
    [
        (DType.BOOL, "clicked", "0 1", '"clicked"'),
        (DType.INT64, "clicked", "0 1", '"clicked"'),
        (DType.FLOAT64, "clicked", "0.0 1", '"clicked"'),
        (DType.INT64, "kind", "1 2", 'hr.int64("kind") == 2'),
        (DType.INT64, "kind", "-1 1", 'hr.int64("kind") == 1'),
        (DType.FLOAT64, "kind", "0.5 1.5", '"kind"'),
        (DType.INT64, "rating", "1 2 3 4 5", '"rating"'),
        (DType.INT64, "shelf", "1 2 3 4 5", ""),
        (DType.INT64, "click_id", "1 2 3", ""),
        (DType.STRING, "bought", "yes no", 'hr.text("bought") == "yes"'),
        (DType.STRING, "bought", "Y N", 'hr.text("bought") == "Y"'),
        (DType.STRING, "bought", "Yes yes no", 'hr.text("bought").lower() == "yes"'),
        (DType.STRING, "bought", "yes no maybe", ""),
        (DType.STRING, "bought", "yes n", ""),
        (DType.STRING, 'a "quoted" é', "on off", 'hr.text("a \\"quoted\\" é") == "on"'),
        (DType.INT64, "clicked", "1", ""),
    ],
)
def test_the_label_of_a_column(kind, name, values, expected):
    assert label_expression(LogColumn(name, kind), dict.fromkeys(values.split(), 1)) == expected


@pytest.mark.parametrize(
    "column", [LogColumn("clicked", DType.INT64, separator="|"), LogColumn("clicked", DType.INT64, is_list=True)]
)
def test_a_column_of_lists_is_no_label(column):
    assert label_expression(column, {"0": 1, "1": 1}) == ""
