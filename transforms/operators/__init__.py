"""The operators: one file per family, each operator declared once and listed in ``REGISTRY``.

A name is loaded when it is first used: graphs are read without operators and their kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from transforms.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from transforms.operators.declaration import Arg as Arg
    from transforms.operators.declaration import Imported as Imported
    from transforms.operators.declaration import Law as Law
    from transforms.operators.declaration import Operator as Operator
    from transforms.operators.declaration import Param as Param
    from transforms.operators.every import REGISTRY as REGISTRY
    from transforms.operators.registry import Registry as Registry

__getattr__, __dir__, __all__ = lazy_exports(__name__)
