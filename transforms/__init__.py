"""The feature language: expressions, operators, graphs, fingerprints and execution plans.

This is the package's whole public surface. A name is loaded when it is first used. Pure: no I/O, no Beam, no TensorFlow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from transforms.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from transforms.errors import HeadraceError as HeadraceError
    from transforms.execution.plan import Plan as Plan
    from transforms.execution.plan import PlanResult as PlanResult
    from transforms.execution.plan import compile_plan as compile_plan
    from transforms.expressions.expression import Expr as Expr
    from transforms.expressions.model import Model as Model
    from transforms.expressions.model import ModelInput as ModelInput
    from transforms.graphs.canonical import canonicalize as canonicalize
    from transforms.graphs.fingerprint import fingerprint as fingerprint
    from transforms.graphs.graph import component_document as component_document
    from transforms.graphs.graph import component_from_document as component_from_document
    from transforms.types import Dense as Dense
    from transforms.types import DType as DType
    from transforms.types import Ragged as Ragged
    from transforms.types import Vector as Vector
    from transforms.types import Weighted as Weighted

__getattr__, __dir__, __all__ = lazy_exports(__name__)
