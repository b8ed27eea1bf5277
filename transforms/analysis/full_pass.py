"""Full-pass operators: the analyses that they need, and the ordinary operators that replace them.

Pure. ``pipelines.analysis`` runs the analyses, and the warehouse stores their results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from transforms.analysis.preprocessing_functions import AnalyzedFunction, kept_function
from transforms.documents import MOST_BYTES, parse_document
from transforms.errors import DataError
from transforms.graphs.build import operation
from transforms.graphs.canonical import canonicalize
from transforms.graphs.encoding import digest
from transforms.graphs.graph import Artifact, Node, Operation, fold, topological
from transforms.operators.declaration import Scalar
from transforms.operators.full_pass import (
    FULL_PASS,
    LABELLED,
    PREPROCESSING_OUTPUT,
    QUANTILE_EPSILON,
    VOCABULARIES,
    WEIGHTED,
)
from transforms.ranges import between
from transforms.render import expression_text
from transforms.time_range import TimeRange
from transforms.types import DType, Ragged, Vector

#: Raise it when the meaning of a stored contribution changes.
_FORMAT = "headrace.analysis/1"
PREPROCESSING = PREPROCESSING_OUTPUT.name
#: The parameters that determine the result of an analysis, not its use.
_SOUGHT = {
    "vocabulary_ids": ("top_k", "min_frequency"),
    "weighted_vocabulary_ids": ("top_k", "min_frequency"),
    "labelled_vocabulary_ids": ("top_k",),
    "weighted_labelled_vocabulary_ids": ("top_k",),
    "quantile_buckets": ("n",),
}
#: Parameters that later releases added, with their former fixed values; only other values enter an analysis's identity.
_SOUGHT_SINCE: Mapping[str, Scalar] = {
    "use_adjusted_mutual_info": False,
    "min_diff_from_avg": -1.0,
    "min_information": float("-inf"),
    "fingerprint_shuffle": False,
}


@dataclass(frozen=True)
class Analysis:
    """The analysis that one full-pass operator, ``node``, needs. Its operands hold no other full-pass operator."""

    node: Operation

    @property
    def operator(self) -> str:
        """The name of the operator."""
        return self.node.op

    @property
    def over(self) -> TimeRange:
        """The range that is analyzed."""
        return between(str(self.params["start"]), str(self.params["end"]))

    @cached_property
    def params(self) -> Mapping[str, Scalar]:
        """The operator's parameters."""
        return dict(self.node.params)

    @cached_property
    def expression(self) -> Node:
        """The analyzed values, canonical. A list is taken as a set where it is compared with a label."""
        values = self.node.operands[0]
        if self.label is not None and isinstance(values.type, Ragged):
            values = operation("unique", (values,), {})
        return canonicalize(values)

    @property
    def roots(self) -> tuple[Node, ...]:
        """Every analyzed expression."""
        return tuple(node for node in (self.expression, self.label, self.weight) if node is not None)

    @cached_property
    def text(self) -> str:
        """The analyzed expression, as it is printed."""
        return expression_text(self.expression)

    @property
    def label(self) -> Node | None:
        """The label that values are compared with, if the operator takes one."""
        return canonicalize(self.node.operands[1]) if self.operator in LABELLED else None

    @property
    def weight(self) -> Node | None:
        """The weight of an event, if the operator takes weights."""
        return canonicalize(self.node.operands[-1]) if self.operator in WEIGHTED else None

    @cached_property
    def partial(self) -> str:
        """The identity of a partition's contribution: the operator and the analyzed expressions."""
        analyzed = [node.identity for node in self.roots]
        epsilon = QUANTILE_EPSILON if self.operator == "quantile_buckets" else None
        return digest([_FORMAT, self.operator, self.node.version, epsilon, analyzed])

    @cached_property
    def fingerprint(self) -> str:
        """The identity of the analysis without the data: :attr:`partial` and the parameters of the result."""
        later = [name for name, before in _SOUGHT_SINCE.items() if self.params.get(name, before) != before]
        return digest([self.partial, {name: self.params[name] for name in (*_SOUGHT.get(self.operator, ()), *later)}])


@dataclass(frozen=True)
class PreprocessingAnalysis(Analysis):
    """The analysis of a preprocessing_fn by tf.Transform, one for all of its outputs."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The keys of the columns that the outputs are given, in order."""
        return _texts(self.params["columns"])

    @cached_property
    def operands(self) -> Mapping[str, Node]:
        """The columns that the outputs are given, canonical, by key. The analyzers read some of them."""
        return {key: canonicalize(node) for key, node in zip(self.columns, self.node.operands, strict=True)}

    @property
    def function(self) -> AnalyzedFunction:
        """The function. Raises :class:`~transforms.errors.InputError` in a process that did not describe it."""
        return kept_function(str(self.params["function"]))

    @property
    def roots(self) -> tuple[Node, ...]:
        """Every analyzed expression."""
        return tuple(self.operands[key] for key in self.function.analyzed)

    @cached_property
    def text(self) -> str:
        """The analyzers that the function calls, and the columns that they read."""
        return f"{self.function.analyzers} of {', '.join(expression_text(root, 60) for root in self.roots)}"

    @cached_property
    def partial(self) -> str:
        """The identity of the function and of the columns that it is given."""
        given = [[key, node.identity] for key, node in sorted(self.operands.items())]
        return digest([_FORMAT, self.operator, self.node.version, self.params["function"], given])

    @cached_property
    def fingerprint(self) -> str:
        """The identity of the analysis without the data."""
        return self.partial


@dataclass(frozen=True, slots=True)
class AnalysisResult:
    """The result of an analysis: an artifact of ``size`` values.

    A statistic of numbers has ``numbers``; a preprocessing_fn has ``graphs``, a document for each output.
    """

    digest: str
    size: int
    numbers: tuple[float, ...] = ()
    graphs: tuple[str, ...] = ()


def analyses(roots: Iterable[Node]) -> tuple[Analysis, ...]:
    """The analyses that components need before they can be computed, one for each full-pass operator.

    Outputs of one preprocessing_fn have one fingerprint.

    An analysis whose expression needs another one is returned by the next call, after :func:`resolve`.
    """
    waiting: set[str] = set()
    found = []
    for node in topological(roots):
        if any(arg.identity in waiting for arg in node.args):
            waiting.add(node.identity)
        elif isinstance(node, Operation) and node.op in FULL_PASS:
            waiting.add(node.identity)
            found.append(PreprocessingAnalysis(node) if node.op == PREPROCESSING else Analysis(node))
    return tuple(found)


def is_resolved(roots: Iterable[Node]) -> bool:
    """Whether components have no full-pass operator left."""
    return not any(is_full_pass(node) for node in topological(roots))


def is_full_pass(node: Node) -> bool:
    """Whether a node is a full-pass operator."""
    return isinstance(node, Operation) and node.op in FULL_PASS


def resolve(root: Node, findings: Mapping[str, AnalysisResult]) -> Node:
    """Replace the full-pass operators of ``root`` that ``findings`` has, by identity; the result is canonical.

    The types of their readers are inferred again: the ids of a vocabulary now have buckets.
    """

    def combine(node: Node, args: tuple[Node, ...]) -> Node:
        if not isinstance(node, Operation):
            return node
        if node.identity in findings:
            return _resolved(node, args, findings[node.identity])
        return node if args == node.operands else operation(node.op, args, dict(node.params))

    return canonicalize(fold(root, combine))


def _resolved(node: Operation, args: tuple[Node, ...], found: AnalysisResult) -> Operation:
    params = dict(node.params)
    match node.op:
        case name if name in VOCABULARIES:
            terms = Artifact(Vector(DType.STRING, found.size), found.digest)
            return operation("vocabulary_lookup", (args[0], terms), {"oov_buckets": params["oov_buckets"]})
        case "quantile_buckets":
            return operation("bucketize", args, {"boundaries": found.numbers})
        case "standardize_over":
            mean, deviation = found.numbers
            return operation("standardize", args, {"mean": mean, "standard_deviation": deviation})
        case "min_max_over":
            low, high = found.numbers
            return operation("min_max", args, {"low": low, "high": high})
        case "preprocessing_output":
            return _resolved_output(node, args, found)
        case _:
            raise AssertionError(f"no ordinary operator stands for {node.op}")


def _resolved_output(node: Operation, args: tuple[Node, ...], found: AnalysisResult) -> Operation:
    """The graph of one output over the columns that it reads."""
    params = dict(node.params)
    given = dict(zip(_texts(params["columns"]), args, strict=True))
    for text in found.graphs:
        whole = parse_document(text, "analyzed output").fields(("output", "columns", "graph"))
        if whole.at("output").text() == params["output"]:
            columns = [each.text() for each in whole.at("columns").items(least=1)]
            if unknown := sorted(set(columns) - given.keys()):
                raise DataError("an analyzed output must read only columns that it is given", where=str(params["output"]),
                                value=", ".join(unknown), allowed=", ".join(given))  # fmt: skip
            return operation(
                "tensorflow_graph",
                tuple(given[key] for key in columns),
                {"graph": whole.at("graph").text(most=MOST_BYTES)},
            )
    raise DataError("an artifact must hold the output of the preprocessing_fn", where=f"artifact {found.digest}",
                    value=params["output"], next_step="headrace analyze MODEL_FILE")  # fmt: skip


def _texts(value: Scalar) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, tuple) else ()
