"""The mutants of a source: each replaces one span of its text by another that means something else.

Left out is what no test can notice, whether or not one would:

- annotations, docstrings, assertions and imports for type checkers, which do nothing;
- ``strict=`` of ``zip``, and ``frozen=``, ``slots=`` and ``kw_only=`` of a dataclass: as assertions, they only refuse what correct code, and mypy,
  do not do;
- texts of errors: what is raised, and what is made of a class that comes from a module ``errors``;
- pauses and time limits (``sleep``, ``timeout=``, module constants named ``..._SECS``): no test depends on the speed of the machine.
"""

from __future__ import annotations

import ast
from collections.abc import Set
from dataclasses import dataclass

#: Each comparison's own text, and the one in its place.
_COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "*", ast.BitAnd: "|", ast.BitOr: "&",
    ast.LShift: ">>", ast.RShift: "<<",
}  # fmt: skip
#: Keyword arguments that state what is true.
_STATED = {"strict", "frozen", "slots", "kw_only"}
_OPPOSITE_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True, slots=True, order=True)
class Mutant:
    """A change of one span of a file.

    Attributes:
        file: relative to the root.
        begin, end: of the span, as byte offsets.
        replacement: the text in its place.
        line: the first line of the span, from 1.
        kind: of change.
    """

    file: str
    begin: int
    end: int
    replacement: str
    line: int
    kind: str

    def applied(self, source: bytes) -> bytes:
        """The changed source."""
        return source[: self.begin] + self.replacement.encode() + source[self.end :]


def mutants_of(file: str, source: bytes, lines: Set[int]) -> list[Mutant]:
    """The mutants whose span begins in one of ``lines``, sorted; every one is valid Python and another program."""
    finder = _Finder(file, source)
    finder.visit(ast.parse(source))
    return sorted(one for one in finder.found if one.line in lines and _is_other_program(one, source))


def _is_other_program(mutant: Mutant, source: bytes) -> bool:
    try:
        changed = ast.parse(mutant.applied(source))
    except SyntaxError:
        return False
    return ast.dump(changed) != ast.dump(ast.parse(source))


def _is_time(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) and target.id.isupper() and target.id.endswith("_SECS")


def _is_pause(node: ast.expr) -> bool:
    function = node.func if isinstance(node, ast.Call) else None
    return (isinstance(function, ast.Name) and function.id == "sleep") or (
        isinstance(function, ast.Attribute) and function.attr == "sleep"
    )


class _Finder(ast.NodeVisitor):
    """Collects the mutants of a module."""

    def __init__(self, file: str, source: bytes) -> None:
        self._file, self._source = file, source
        self._errors: set[str] = set()
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self.found: set[Mutant] = set()

    def _begin(self, node: ast.expr | ast.stmt) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None, "the parser sets it"
        assert node.end_col_offset is not None, "the parser sets it"
        return self._starts[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.expr) -> str:
        return self._source[self._begin(node) : self._end(node)].decode()

    def _add(self, node: ast.expr | ast.stmt, replacement: str, kind: str) -> None:
        self.found.add(Mutant(self._file, self._begin(node), self._end(node), replacement, node.lineno, kind))

    # What has no behaviour.

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Only the value: an annotation has no behaviour."""
        if node.value is not None and not _is_time(node.target):
            self.visit(node.value)

    def visit_arg(self, node: ast.arg) -> None:
        """Nothing: its annotation has no behaviour."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Nothing: it states what is true, for a reader and a type checker."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Nothing; what comes from a module ``errors`` is an error."""
        if (node.module or "").rpartition(".")[2] == "errors":
            self._errors.update(alias.asname or alias.name for alias in node.names)

    def visit_keyword(self, node: ast.keyword) -> None:
        """Not what states what is true, and no time limit."""
        if node.arg not in _STATED and not (node.arg == "timeout" and isinstance(node.value, ast.Constant)):
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        """The values but those of constants that are times, of which there may be several in one statement."""
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            for name, value in pairs:
                if not _is_time(name):
                    self.visit(value)
            self.visit(target)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """The defaults and the body; not the annotation of the result."""
        for part in (*node.decorator_list, node.args, *node.body):
            self.visit(part)

    def visit_If(self, node: ast.If) -> None:
        """Not the imports for type checkers."""
        if ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            return
        self._negate(node.test)
        self.generic_visit(node)

    # What has.

    def visit_While(self, node: ast.While) -> None:
        """The condition, unless it is a constant."""
        if not isinstance(node.test, ast.Constant):
            self._negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """The condition."""
        self._negate(node.test)
        self.generic_visit(node)

    def _negate(self, test: ast.expr) -> None:
        if not isinstance(test, ast.Compare | ast.UnaryOp):  # these are changed on their own
            self._add(test, f"(not ({self._text(test)}))", "condition")

    def visit_Compare(self, node: ast.Compare) -> None:
        """The operators one by one."""
        operands = [node.left, *node.comparators]
        for position, operator in enumerate(node.ops):
            parts = [self._text(operands[0])]
            for other, (each, operand) in enumerate(zip(node.ops, operands[1:], strict=True)):
                parts += [_COMPARISONS[type(each)][other == position], self._text(operand)]
            self._add(node, " ".join(parts), type(operator).__name__)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """The operator, and each operand left out."""
        texts = [f"({self._text(value)})" for value in node.values]
        same, other = (" and ", " or ") if isinstance(node.op, ast.And) else (" or ", " and ")
        self._add(node, other.join(texts), type(node.op).__name__)
        for position in range(len(texts)):
            left = texts[:position] + texts[position + 1 :]
            self._add(node, same.join(left), "operand left out")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        """A negation."""
        if isinstance(node.op, ast.Not):
            self._add(node, f"bool({self._text(node.operand)})", "Not")
        elif isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant):
            self._add(node, f"({self._text(node.operand)})", "USub")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """The operator, unless an operand is a text."""
        other = _ARITHMETIC.get(type(node.op))
        has_text = any(isinstance(each, ast.JoinedStr) or (isinstance(each, ast.Constant) and isinstance(each.value, str | bytes))
                       for each in (node.left, node.right))  # fmt: skip
        if other is not None and not has_text:
            self._add(node, f"({self._text(node.left)}) {other} ({self._text(node.right)})", type(node.op).__name__)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """A number or a truth value."""
        if isinstance(node.value, bool):
            self._add(node, str(not node.value), "bool")
        elif isinstance(node.value, int | float):
            self._add(node, repr(node.value + 1), type(node.value).__name__)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Nothing: the formats of messages."""

    def visit_Call(self, node: ast.Call) -> None:
        """A smallest for a largest, one for all; of an error nothing, whose arguments are its text."""
        if isinstance(node.func, ast.Name) and node.func.id in self._errors:
            return
        if isinstance(node.func, ast.Name) and node.func.id in _OPPOSITE_CALLS:
            self._add(node.func, _OPPOSITE_CALLS[node.func.id], "opposite call")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        """A call whose result is not used, left out; a docstring and a pause are nothing."""
        if isinstance(node.value, ast.Constant) or _is_pause(node.value):
            return
        if isinstance(node.value, ast.Call):
            self._add(node, "pass", "call left out")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Left out, or another operator."""
        self._add(node, "pass", "update left out")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        """Left out; the error's text is nothing."""
        self._add(node, "pass", "error left out")

    def visit_Break(self, node: ast.Break) -> None:
        """The next round in place of the end."""
        self._add(node, "continue", "Break")

    def visit_Continue(self, node: ast.Continue) -> None:
        """The end in place of the next round."""
        self._add(node, "break", "Continue")

    def visit_Return(self, node: ast.Return) -> None:
        """Nothing in place of a value."""
        if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            self._add(node, "return None", "Return")
        self.generic_visit(node)
