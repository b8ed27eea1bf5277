"""The public names of the language."""

from __future__ import annotations

import headrace
import transforms

TRANSFORMS = """
DType Dense Expr HeadraceError Model ModelInput Plan PlanResult Ragged Vector Weighted canonicalize compile_plan
component_document component_from_document fingerprint
"""
HEADRACE = """
Dense Ragged Vector Weighted from_preprocessing_fn from_transform_output maximum minimum moment op vector weighted
Expr HeadraceError Label Model between boolean coalesce column concat cross float32 float64 if_else int64 literal ragged read scan table text timestamp
try_ Expect Home online open batches jax torch
"""


def test_surfaces_are_pinned_and_every_name_loads():
    for package, surface in ((transforms, TRANSFORMS), (headrace, HEADRACE)):
        assert package.__all__ == sorted(surface.split())
        assert all(getattr(package, name) is not None for name in package.__all__)


def test_unknown_names_are_attribute_errors():
    assert not hasattr(transforms, "nothing_of_this_name")
    assert not hasattr(headrace, "nothing_of_this_name")
