"""The operators: one file a family, each operator declared once, all of them in ``REGISTRY``."""

from transforms.operators import arithmetic, casting, conditional, hashing, numeric, ragged, text, timestamps
from transforms.operators.declaration import Arg, KernelAt, Law, Operator, Param
from transforms.operators.registry import Registry

#: Every operator that exists, by name.
REGISTRY = Registry(
    operator
    for family in (text, ragged, hashing, numeric, casting, arithmetic, conditional, timestamps)
    for operator in family.OPERATORS
)

__all__ = ["REGISTRY", "Arg", "KernelAt", "Law", "Operator", "Param", "Registry"]
