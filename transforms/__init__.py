"""The feature language and what becomes of it: expressions, operators, graphs, fingerprints, plans.

This is the room's whole public surface. Names are loaded when they are first used. Pure: no I/O, no Beam, no TensorFlow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from transforms.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from transforms.canonical import canonicalize as canonicalize
    from transforms.errors import HeadraceError as HeadraceError
    from transforms.expression import Expr as Expr
    from transforms.fingerprint import fingerprint as fingerprint
    from transforms.graph import component_document as component_document
    from transforms.graph import component_from_document as component_from_document
    from transforms.model import Model as Model
    from transforms.model import ModelInput as ModelInput
    from transforms.plan import Plan as Plan
    from transforms.plan import PlanResult as PlanResult
    from transforms.plan import compile_plan as compile_plan
    from transforms.types import Dense as Dense
    from transforms.types import DType as DType
    from transforms.types import Ragged as Ragged
    from transforms.types import Vector as Vector
    from transforms.types import Weighted as Weighted

__getattr__, __dir__, __all__ = lazy_exports(__name__)
