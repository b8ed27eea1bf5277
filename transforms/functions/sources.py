"""The source of a function or class in one form.

It leaves out comments, blank lines, indentation, docstrings, decorators, annotations of arguments and variables and the
place in the file; a default is written as None, since the bundle holds its value. This text is fingerprinted and
compiled.
"""

from __future__ import annotations
import __future__

import ast
import linecache
from collections.abc import Sequence
from functools import lru_cache
from types import CodeType, FunctionType

#: A global of modules whose assertions pytest has rewritten.
_REWRITTEN = "@pytest_ar"

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def source_of_function(function: FunctionType) -> str | None:
    """The source of a function in its one form; None if it cannot be found."""
    code = function.__code__
    tree = _tree(code.co_filename, function.__globals__)
    if tree is None:
        return None
    found = [node for node in ast.walk(tree) if isinstance(node, _Definition) and _may_be(node, code)]
    if len(found) > 1:
        if all(None in position for position in code.co_positions()):
            return None  # Python runs without column positions, so the lambda is ambiguous
        found = sorted((node for node in found if _spans(node, code)), key=_extent)[:1]
    return _function_source(found[0]) if found else None


def is_of_its_file(function: FunctionType) -> bool:
    """Whether the function's code equals that of its file; files change, and so does code in memory."""
    code = function.__code__
    linecache.checkcache(code.co_filename)
    text = "".join(linecache.getlines(code.co_filename, function.__globals__))
    flags = code.co_flags & __future__.annotations.compiler_flag  # an earlier notebook cell may have set it
    found = _codes(text, flags).get((code.co_name, code.co_firstlineno), ())
    if _REWRITTEN in function.__globals__:  # pytest rewrites assertions
        return any(code.co_varnames[: code.co_argcount] == each.co_varnames[: each.co_argcount] for each in found)
    return code in found


@lru_cache(maxsize=16)
def _codes(text: str, flags: int) -> dict[tuple[str, int], list[CodeType]]:
    """Every code object of a text compiled with these flags, by name and first line."""
    found: dict[tuple[str, int], list[CodeType]] = {}
    try:
        waiting = [compile(text, "<file>", "exec", flags, dont_inherit=True)]
    except (SyntaxError, ValueError):
        return {}  # the file has changed since
    while waiting:
        code = waiting.pop()
        found.setdefault((code.co_name, code.co_firstlineno), []).append(code)
        waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return found


def source_of_class(name: str, filename: str, namespace: dict[str, object]) -> str | None:
    """The source of a class at the top of a file in its one form; None unless there is exactly one of this name.

    Decorators and annotations are kept: they make a dataclass what it is.
    """
    tree = _tree(filename, namespace)
    found = [] if tree is None else [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    if len(found) != 1:
        return None
    (copy,) = ast.parse(ast.unparse(found[0])).body
    return ast.unparse(ast.fix_missing_locations(_OneForm().visit(copy)))


def compiled_function(source: str, free: Sequence[str], filename: str = "<function of a model>") -> CodeType:
    """The code of the function in ``source``, compiled where the names ``free`` belong to an enclosing function.

    Assertions are compiled even with ``python -O``.
    """
    statement = ast.parse(source).body[0]
    if isinstance(statement, ast.Expr):
        statement = ast.Return(statement.value)
    # A function's own name that is not enclosed is a global, as in the original file.
    own = getattr(statement, "name", "")
    before: list[ast.stmt] = [ast.Global([own])] if own and own not in free else []
    arguments = ast.arguments([], [ast.arg(name) for name in free], None, [], [], None, [])
    maker = ast.FunctionDef("maker", arguments, [*before, statement], [], None, None)
    setattr(maker, "type_params", [])  # noqa: B010 - a field since Python 3.12
    module = ast.fix_missing_locations(ast.Module([maker], []))
    outer = _first_code(compile(module, filename, "exec", dont_inherit=True, optimize=0))
    return _first_code(outer)


def compiled_class(source: str, filename: str = "<class of a model>") -> CodeType:
    """The code that defines the class in ``source``, to be run in a namespace."""
    return compile(source, filename, "exec", dont_inherit=True, optimize=0)


def _first_code(code: CodeType) -> CodeType:
    return next(constant for constant in code.co_consts if isinstance(constant, CodeType))


def _tree(filename: str, namespace: dict[str, object]) -> ast.Module | None:
    linecache.checkcache(filename)
    try:
        return _parsed("".join(linecache.getlines(filename, namespace)))
    except SyntaxError:
        return None


@lru_cache(maxsize=16)
def _parsed(text: str) -> ast.Module | None:
    return ast.parse(text) if text else None


def _may_be(node: _Definition, code: CodeType) -> bool:
    if isinstance(node, ast.Lambda):
        return code.co_name == "<lambda>" and node.lineno <= code.co_firstlineno <= (node.end_lineno or node.lineno)
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return node.name == code.co_name and first == code.co_firstlineno


def _spans(node: _Definition, code: CodeType) -> bool:
    """Whether the code was compiled from the node's text; positions distinguish lambdas on one line."""
    low, high = (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)
    for line, end_line, column, end_column in code.co_positions():
        if None in (line, end_line, column, end_column) or (line, column) == (end_line, end_column):
            continue
        if not low <= (line, column) <= (end_line, end_column) <= high:
            return False
    return True


def _extent(node: _Definition) -> tuple[int, int]:
    return (node.end_lineno or 0) - node.lineno, (node.end_col_offset or 0) - node.col_offset


def _function_source(node: _Definition) -> str:
    (statement,) = ast.parse(ast.unparse(node)).body
    definition = statement.value if isinstance(statement, ast.Expr) else statement
    assert isinstance(definition, _Definition), "what was written is a function"
    arguments = definition.args
    arguments.defaults = [ast.Constant(None) for _ in arguments.defaults]
    arguments.kw_defaults = [default and ast.Constant(None) for default in arguments.kw_defaults]
    if not isinstance(definition, ast.Lambda):
        definition.decorator_list = []
    return ast.unparse(ast.fix_missing_locations(_OneForm().visit(statement)))


class _OneForm(ast.NodeTransformer):
    """Removes parts that have no effect on a definition."""

    def __init__(self) -> None:
        self._in_class = False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = node.type_comment = None
        return self._block(node, in_class=False)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._block(node, in_class=True)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if self._in_class or not isinstance(node.target, ast.Name):
            return self.generic_visit(node)
        if node.value is None:
            node.annotation = ast.Constant(None)
            return node
        return self.generic_visit(ast.Assign([node.target], node.value))

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = node.type_comment = None
        return node

    def _block(self, node: ast.FunctionDef | ast.ClassDef, *, in_class: bool) -> ast.AST:
        outer, self._in_class = self._in_class, in_class
        node.body = _effective(node.body)
        self.generic_visit(node)
        self._in_class = outer
        return node


def _effective(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements without those that are only a constant: docstrings and ``...``."""
    kept = [node for node in body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]
    return kept or [ast.Pass()]
