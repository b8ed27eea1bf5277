"""The feature language and what becomes of it: expressions, operators, graphs, fingerprints, plans.

This is the room's whole public surface. Names are loaded when they are first used. Pure: no I/O, no Beam, no TensorFlow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

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

_HOMES = {
    "canonical": ("canonicalize",),
    "errors": ("HeadraceError",),
    "expression": ("Expr",),
    "fingerprint": ("fingerprint",),
    "graph": ("component_document", "component_from_document"),
    "model": ("Model", "ModelInput"),
    "plan": ("Plan", "PlanResult", "compile_plan"),
    "types": ("DType", "Dense", "Ragged", "Vector", "Weighted"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'transforms' has no attribute {name!r}")
    return getattr(import_module(f"transforms.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
