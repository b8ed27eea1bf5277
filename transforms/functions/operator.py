"""The decorator that makes a vectorised Python function over Arrow arrays an operator."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any, TypeVar

import pyarrow as pa

from transforms.errors import InputError, TypeMismatch
from transforms.expressions.expression import Expr, apply
from transforms.functions.bundle import Wrapped, write_bundle
from transforms.functions.comparison import check_rebuilt
from transforms.functions.errors import Unfingerprintable
from transforms.functions.rebuild import rebuilt
from transforms.functions.run import run_guarded
from transforms.functions.values import NOT_A_CONSTANT, encoded
from transforms.types import ColumnType, Dense, DType, Ragged, Vector, Weighted, type_document

_F = TypeVar("_F", bound=Callable[..., Any])


def op(*, result: ColumnType | DType | str) -> Callable[[Callable[..., Any]], PythonFunction]:
    """Make a function an operator with outputs of type ``result``; an element type means one value per event.

    The function takes Arrow arrays of equal length, one per expression, and returns one of that length; row i depends
    only on row i of the arguments. Dense arrays may hold nulls. The decorator bundles the function with all that it
    reaches: later changes have no effect. ``docs/functions.md`` lists what it may reach.

    Raises :class:`~transforms.functions.errors.Unfingerprintable` with the variable that cannot be bundled, or that
    changes from run to run.

    >>> @op(result="int64")
    ... def doubled(clicks):
    ...     import pyarrow.compute as pc
    ...
    ...     return pc.multiply(clicks, 2)
    >>> try_(doubled(int64("clicks")), {"clicks": [1, None]}).to_pylist()
    [2, None]
    """
    column_type = result if isinstance(result, Dense | Ragged | Weighted | Vector) else Dense(result)  # type: ignore[arg-type]
    return lambda function: PythonFunction(function, column_type)


class PythonFunction(Wrapped):
    """A function as an operator: over expressions it returns an expression, over Arrow arrays it runs.

    ``bundle`` is the text that is fingerprinted and run, ``result`` the type of the output.
    """

    def __init__(self, function: Callable[..., Any], result: ColumnType) -> None:
        self.name = str(getattr(function, "__name__", type(function).__name__))
        if inspect.isgeneratorfunction(function) or not callable(function):
            raise Unfingerprintable("it is a generator function" if callable(function) else "it is no function",
                                    function=self.name, next_step="return one Arrow array")  # fmt: skip
        self.__doc__ = function.__doc__
        self.__name__ = self.name
        self.function = function
        self.result = result
        bundle = write_bundle(function, self.name)
        check_rebuilt(bundle, self.name)
        self.bundle = bundle.text
        self._signature = inspect.signature(function)

    def __repr__(self) -> str:
        return f"<operator {self.name}: {self.result}>"

    def __call__(self, *arguments: Expr | pa.Array, **parameters: object) -> Any:
        """An expression over expressions, or an array over Arrow arrays.

        Raises :class:`InputError` for arguments that the function does not take and :class:`TypeMismatch` for an
        argument that is not an expression, or a parameter that is one.
        """
        if arguments and all(isinstance(each, pa.Array | pa.ChunkedArray) for each in arguments):
            return run_guarded(rebuilt(self.bundle), arguments, parameters, self.bundle)
        for position, argument in enumerate(arguments):
            if not isinstance(argument, Expr):
                raise TypeMismatch(f"function {self.name} must be given expressions by position", value=argument,
                                   where=f"argument {position + 1}",
                                   next_step="give parameters by name")  # fmt: skip
        keywords = self._keywords(arguments, parameters)
        takes = tuple(_type_text(argument.type) for argument in arguments)
        return apply("python_function", *arguments, bundle=self.bundle, keywords=keywords, takes=takes,
                     gives=json.dumps(type_document(self.result), sort_keys=True))  # fmt: skip

    def _keywords(self, arguments: tuple[object, ...], parameters: dict[str, object]) -> str:
        """The parameters that are not at their defaults, as JSON."""
        try:
            self._signature.bind(*arguments, **parameters)
        except TypeError as error:
            raise InputError(f"function {self.name} does not take these arguments", value=str(error),
                             allowed=f"{self.name}{self._signature}") from None  # fmt: skip
        documents: dict[str, object] = {}
        for name, value in sorted(parameters.items()):
            document = self._document(name, value)
            known = self._signature.parameters.get(name)
            if (
                known is None
                or known.default is known.empty
                or _text(encoded(known.default, _plain)) != _text(document)
            ):
                documents[name] = document
        return json.dumps(documents, sort_keys=True)

    def _document(self, name: str, value: object) -> object:
        if isinstance(value, Expr):
            raise TypeMismatch(f"function {self.name} must be given expressions by position", value=name,
                               where=f"parameter {name}", next_step="give it without its name")  # fmt: skip
        value = tuple(value) if isinstance(value, list) else value
        document = encoded(value, _plain) if isinstance(value, bool | int | float | str | tuple | None) else None
        if document is NOT_A_CONSTANT or (document is None and value is not None):
            raise InputError(f"a parameter of function {self.name} must be a plain value", where=f"parameter {name}",
                             value=value, allowed="bool, int, float, str, or a tuple of these")  # fmt: skip
        return document


def _text(document: object) -> str:
    """A document as it is fingerprinted, since 1 == True in Python."""
    return "" if document is NOT_A_CONSTANT else json.dumps(document, sort_keys=True)


def _plain(item: object, place: str) -> object:
    document = encoded(item, _plain)
    if document is NOT_A_CONSTANT:
        raise InputError("a parameter of a function must be a plain value", where=place, value=item,
                         allowed="bool, int, float, str, or a tuple of these")  # fmt: skip
    return document


def _type_text(column_type: ColumnType) -> str:
    document = type_document(column_type)
    document.pop("buckets", None)
    return json.dumps(document, sort_keys=True)
