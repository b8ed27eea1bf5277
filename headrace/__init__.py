"""Headrace computes each feature once for all models, stores it, and feeds the trainers.

    import headrace as hr

    model = hr.Model("search_ctr", client="search", label="clicked")
    model.input("words", hr.text("query").unigrams().hash_buckets(100_000))

    hr.read("search_ctr", "2026-03-01", "2026-03-08")  # the model's inputs, as a table

Names are resolved on first use, so that importing this package is fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import checkout as checkout  # first: it finds the packages beside this one
from transforms.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from headrace.client.home import Home as Home
    from headrace.client.opening import open as open
    from headrace.frames import try_ as try_
    from headrace.loaders.batches import batches as batches
    from headrace.loaders.jax import jax as jax
    from headrace.loaders.torch import torch as torch
    from headrace.online_states import online as online
    from headrace.reading import read as read
    from headrace.reading import scan as scan
    from transforms.analysis.expectation import Expect as Expect
    from transforms.errors import HeadraceError as HeadraceError
    from transforms.expressions.expression import Expr as Expr
    from transforms.expressions.expression import boolean as boolean
    from transforms.expressions.expression import coalesce as coalesce
    from transforms.expressions.expression import column as column
    from transforms.expressions.expression import concat as concat
    from transforms.expressions.expression import cross as cross
    from transforms.expressions.expression import float32 as float32
    from transforms.expressions.expression import float64 as float64
    from transforms.expressions.expression import if_else as if_else
    from transforms.expressions.expression import int64 as int64
    from transforms.expressions.expression import literal as literal
    from transforms.expressions.expression import maximum as maximum
    from transforms.expressions.expression import minimum as minimum
    from transforms.expressions.expression import moment as moment
    from transforms.expressions.expression import ragged as ragged
    from transforms.expressions.expression import text as text
    from transforms.expressions.expression import timestamp as timestamp
    from transforms.expressions.expression import vector as vector
    from transforms.expressions.expression import weighted as weighted
    from transforms.expressions.model import Label as Label
    from transforms.expressions.model import Model as Model
    from transforms.expressions.tables import table as table
    from transforms.functions import op as op
    from transforms.ranges import between as between
    from transforms.twins.preprocessing import from_preprocessing_fn as from_preprocessing_fn
    from transforms.twins.preprocessing import from_transform_output as from_transform_output
    from transforms.types import Dense as Dense
    from transforms.types import Ragged as Ragged
    from transforms.types import Vector as Vector
    from transforms.types import Weighted as Weighted

__getattr__, __dir__, __all__ = lazy_exports(__name__)
