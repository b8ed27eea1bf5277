"""Where Headrace's modules are: five packages of a checkout, or all of them below ``headrace`` in a wheel.

Code, documents and fingerprints name a module as a checkout does, such as ``transforms.kernels.text``, and so are equal in both.
``setup.py`` moves the packages and their imports, not the names in texts: :func:`own_module` translates those.
"""

from __future__ import annotations

from pathlib import Path

#: The packages that a wheel has below ``headrace``.
PARTS = ("transforms", "warehouse", "pipelines", "trainer")
_PREFIX = __name__.removesuffix("transforms.installation")
IS_WHEEL = bool(_PREFIX)
#: The packages at the top of this installation.
PACKAGES = ("headrace",) if IS_WHEEL else (*PARTS, "headrace")
#: The folder with these packages.
ROOT = Path(__file__).parents[__name__.count(".")]


def own_module(name: str) -> str:
    """The name by which this installation imports a module; ``name`` is the one in a checkout."""
    return _PREFIX + name if name.partition(".")[0] in PARTS else name


def checkout_name(module: str) -> str:
    """The inverse of :func:`own_module`; other modules keep their names."""
    inner = module.removeprefix("headrace.")
    return inner if inner.partition(".")[0] in PARTS else module


def is_foreign_namesake(module: str) -> bool:
    """Whether another project's module has a name that Headrace's modules have in a checkout."""
    return IS_WHEEL and module.partition(".")[0] in PARTS
