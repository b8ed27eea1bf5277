"""User-defined functions as operators: bundled with all that they reach, fingerprinted and rebuilt.

The fingerprinted text is what runs. The decorator (``operator.py``) writes the function and everything that it reaches
into one text, the *bundle* (``bundle.py``): sources (``sources.py``), the meaning of their names (``reach.py``), constants
(``values.py``) and the versions of packages (``packages.py``). A worker compiles that text (``rebuild.py``) and runs it
over Arrow arrays (``run.py``) without the function's file. Nothing is pickled.
"""

from transforms.functions.errors import OtherPackageVersion, Unfingerprintable
from transforms.functions.operator import PythonFunction, op

__all__ = ["OtherPackageVersion", "PythonFunction", "Unfingerprintable", "op"]
