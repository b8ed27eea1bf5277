"""A function of the user's own as an operator: written down whole, fingerprinted, and rebuilt where it runs.

What is fingerprinted is what runs. The decorator (``operator.py``) writes the function and everything it reaches into
one text, the *bundle* (``bundle.py``): sources (``sources.py``), what their names stand for (``reach.py``), constants
(``values.py``) and the versions of packages (``packages.py``). A worker compiles that text again (``rebuild.py``) and runs
it over Arrow arrays (``run.py``); the file the function was written in is not needed there, and nothing is pickled.
"""

from transforms.functions.errors import OtherPackageVersion, Unfingerprintable
from transforms.functions.operator import PythonFunction, op

__all__ = ["OtherPackageVersion", "PythonFunction", "Unfingerprintable", "op"]
