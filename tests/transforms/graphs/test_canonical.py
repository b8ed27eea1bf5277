from __future__ import annotations

import itertools
import math
import struct

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from tests.support.examples import scaled
from tests.transforms.adversarial import operation
from tests.transforms.components import INPUTS, TOKENS, rebuilt
from tests.transforms.hostile import COLUMNS, batch, components, identities_of, spellings
from transforms.errors import InputError, OtherRelease
from transforms.execution.fusion import FUSABLE
from transforms.execution.plan import compile_plan
from transforms.expressions.expression import (
    boolean,
    coalesce,
    concat,
    float32,
    float64,
    int64,
    literal,
    minimum,
    ragged,
    text,
)
from transforms.expressions.model import Model
from transforms.graphs.canonical import NAMED, CanonicalForms, canonicalize
from transforms.graphs.fingerprint import fingerprint
from transforms.graphs.graph import (
    Literal,
    Operation,
    component_document,
    component_from_document,
    raw_columns,
    shape_identity,
    topological,
)
from transforms.operators import REGISTRY
from transforms.types import Dense, Ragged

A, B, C = (text(name).unigrams() for name in "abc")


@given(INPUTS)
@settings(max_examples=scaled(200))
def test_canonical_form_is_idempotent(expression):
    once = canonicalize(expression.node)
    assert canonicalize(once) == once


@given(INPUTS)
@settings(max_examples=scaled(100))
def test_fingerprint_does_not_depend_on_object_identity(expression):
    assert fingerprint(rebuilt(expression.node)) == fingerprint(expression.node)


@given(INPUTS)
@settings(max_examples=scaled(100))
def test_document_round_trip_keeps_the_identity(expression):
    root = canonicalize(expression.node)
    assert component_from_document(component_document(root)) == root


@given(TOKENS, TOKENS, TOKENS)
@settings(max_examples=scaled(100))
def test_set_operations_ignore_order_grouping_and_repetition(a, b, c):
    assert fingerprint((a & b & c).node) == fingerprint((c & (b & a) & b).node)
    assert fingerprint((a | b | c).node) == fingerprint((c | (b | a) | a).node)


def test_items_that_are_dropped_on_the_way_stay_dropped():
    flags, a, b = ragged("flags", "bool"), boolean("a"), boolean("b")
    batch = pa.table({"flags": [[True, False]] * 3, "a": [None, False, True], "b": pa.array([False, None, None])})
    for expression in (flags & a & b, flags | a | b, flags & (a & b), (flags & a) | b):
        plain, canonical = (compile_plan({"x": node}) for node in (expression.node, canonicalize(expression.node)))
        assert canonical.run(batch).columns["x"].equals(plain.run(batch).columns["x"]), expression
    assert fingerprint((flags & a & b).node) != fingerprint((flags & (a & b)).node)


def test_order_matters_where_it_means_something():
    differing = {fingerprint(concat(*order).node) for order in itertools.permutations([A, B, C])}
    assert len(differing) == 6
    assert fingerprint((A - B).node) != fingerprint((B - A).node)


def test_a_set_of_one_thing_twice_stays_a_set():
    # intersect(a, a) sorts and drops repeats, so it is not a.
    assert fingerprint((A & A).node) != fingerprint(A.node)
    assert fingerprint((A & A & A).node) == fingerprint((A & A).node)


def test_identities_are_dropped():
    n = int64("n")
    assert canonicalize(n.cast("int64").node) == n.node
    assert canonicalize(concat(A).node) == A.node
    assert fingerprint((A & B).unique().node) == fingerprint((A & B).node)
    assert fingerprint(A.head(5).head(3).node) == fingerprint(A.head(3).node)
    assert fingerprint(A.head(3).head(5).node) == fingerprint(A.head(3).node)
    assert fingerprint(text("a").lower().lower().node) == fingerprint(text("a").lower().node)


def test_constants_are_folded():
    folded = canonicalize((literal(2) + literal(3)).node)
    assert isinstance(folded, Literal)
    assert folded.value == 5
    assert fingerprint((int64("n") + (literal(2) + literal(3))).node) == fingerprint((int64("n") + 5).node)


LITERALS = st.recursive(
    st.one_of(
        st.integers(-(2**63), 2**63 - 1).map(literal),
        st.sampled_from([0, 1, 4, 2**53 + 1, 2**62]).map(literal),
        st.floats(width=64).map(literal),
        st.sampled_from([0.1, -0.0, 1e300, 16777217.0]).map(literal),
    ),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: pair[0] + pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] * pair[1]),
        st.tuples(inner, inner).map(lambda pair: coalesce(*pair)),
        st.tuples(inner, st.sampled_from(["float32", "float64", "int64"])).map(lambda pair: pair[0].cast(pair[1])),
    ),
    max_leaves=5,
)


@given(LITERALS)
@settings(max_examples=scaled(300))
def test_folding_constants_changes_no_value(constant):
    expression = coalesce(float64("x"), constant)
    batch = pa.table({"x": pa.array([None, 1.5, None], pa.float64())})
    plan = compile_plan({"written": expression.node, "canonical": canonicalize(expression.node)})
    columns = plan.run(batch).columns
    assert columns["written"].buffers()[1].to_pybytes() == columns["canonical"].buffers()[1].to_pybytes()


def test_every_nan_is_one_constant():
    (payload,) = struct.unpack("<d", bytes.fromhex("010000000000f8ff"))
    for constant in (literal(payload), literal(0) + literal(payload)):
        expression = coalesce(float64("x"), constant)
        assert fingerprint(expression.node) == fingerprint(coalesce(float64("x"), literal(math.nan)).node)
        plan = compile_plan({"written": expression.node, "canonical": canonicalize(expression.node)})
        for column in plan.run(pa.table({"x": pa.array([None], pa.float64())})).columns.values():
            assert column.buffers()[1].to_pybytes() == struct.pack("<d", math.nan)


def test_a_rounded_constant_is_not_the_constant():
    assert fingerprint(literal(0.1).cast("float32").cast("float64").node) != fingerprint(literal(0.1).node)


def test_shared_subexpressions_are_one_node():
    lowered = text("a").lower()
    root = canonicalize(concat(lowered.unigrams(), text("a").lower().split("|")).node)
    lowers = [node for node in topological([root]) if isinstance(node, Operation) and node.op == "lower"]
    assert len(lowers) == 1


HOSTILE = batch()


@pytest.mark.slow
@given(components())
@settings(max_examples=scaled(200), suppress_health_check=list(HealthCheck))
def test_canonical_form_changes_no_bit_of_hostile_columns(root):
    plan = compile_plan({"written": root, "canonical": canonicalize(root)}, fused=False)
    result = plan.run(HOSTILE)
    found = result.failures or result.columns
    assert result.failures or _bytes(found["written"]) == _bytes(found["canonical"])
    assert sorted(result.failures) in ([], ["canonical", "written"])
    assert canonicalize(canonicalize(root)) == canonicalize(root)


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type))
def test_identities_change_no_bit_of_hostile_columns(column):
    written = {str(i): node for i, node in enumerate(identities_of(column)) if node is not None}
    roots = {"column": column, **written, **{f"c{key}": canonicalize(node) for key, node in written.items()}}
    columns = compile_plan(roots).run(HOSTILE).columns
    for key in written:
        assert _bytes(columns[f"c{key}"]) == _bytes(columns[key]), written[key]
    if isinstance(column.type, Dense | Ragged):
        cast = operation("cast", [column], {"dtype": column.type.dtype.value})
        assert canonicalize(cast) == column


def _bytes(array):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("it", array.type)])) as writer:
        writer.write_batch(pa.record_batch({"it": array}))
    return sink.getvalue().to_pybytes()


@given(spellings())
@settings(max_examples=scaled(300), suppress_health_check=list(HealthCheck))
def test_brackets_order_and_repetition_that_laws_allow_are_one_component(pair):
    one, other = map(canonicalize, pair)
    assert one == other
    columns = compile_plan({"one": pair[0], "other": pair[1], "canonical": one}).run(HOSTILE).columns
    assert len({_bytes(column) for column in columns.values()}) == 1


def test_constants_fold_in_whatever_brackets_they_stand():
    for x in (int64("x"), float64("x")):
        spelled = (
            minimum(x, 1, 2), minimum(x, minimum(1, 2)), minimum(minimum(x, 2), 1), minimum(2, minimum(1, x)),
            minimum(x, minimum(2, 1).cast("int64")),
        )  # fmt: skip
        assert len({fingerprint(each.node) for each in spelled}) == 1
        assert fingerprint(spelled[0].node) == fingerprint(minimum(x, 1).node)
        assert fingerprint(coalesce(x, 1, 2).node) == fingerprint(coalesce(x, coalesce(1, 2)).node)
    assert fingerprint(minimum(int64("x")).node) == fingerprint(minimum(int64("x"), int64("x")).node)


def test_numbers_of_several_types_meet_in_one_operation():
    a, b, c = int64("a"), int64("b"), float64("c")
    assert fingerprint(minimum(minimum(a, b), c).node) == fingerprint(minimum(a, minimum(b, c)).node)
    assert fingerprint(coalesce(coalesce(a, b), c).node) == fingerprint(coalesce(a, coalesce(b, c)).node)
    ten, twenty = (ragged(name, "string").hash_buckets(10 * (i + 1)) for i, name in enumerate("de"))
    assert fingerprint(((ten | ten) | twenty).node) == fingerprint((ten | (ten | twenty)).node)
    clicks = ragged("clicks", "int64")
    assert fingerprint(minimum(minimum(clicks, a), b).node) == fingerprint(minimum(clicks, minimum(a, b)).node)


def of_other_release(root, *ops):
    document = component_document(root)
    for node in document["nodes"]:
        if node.get("op") in ops:
            node["version"] += 1
    return component_from_document(document)


def test_rules_leave_operators_of_other_releases_as_they_are():
    a, b = text("a").unigrams(), text("b").unigrams()
    x, y = int64("x"), int64("y")
    written = {
        "cast": x.cast("int64"), "concat": concat(concat(a), b), "unique": a.unique().unique(), "head": a.head(5).head(3),
        "union": (a | b) | a, "minimum": minimum(minimum(y, x), x), "add": y + x, "lower": text("a").lower().lower(),
        "and": boolean("p") & boolean("q") & boolean("p"), "log1p": literal(1.0).log1p(), "coalesce": coalesce(x, y, x),
    }  # fmt: skip
    for op, expression in written.items():
        other = of_other_release(expression.node, op)
        assert canonicalize(other) == other, op
    for op in ("intersect", "union", "difference"):
        sets = {"intersect": a & b, "union": a | b, "difference": a - b}[op]
        assert canonicalize(sets.unique().node) == canonicalize(sets.node)
        root = of_other_release(sets.unique().node, op)
        assert canonicalize(root) == root, op


def test_rules_name_operators_in_the_version_they_have():
    """Who raises a version looks at the rules that name the operator, and writes the new version into them."""
    assert {(name, REGISTRY[name].version) for name, _ in NAMED} == NAMED
    assert {(name, REGISTRY[name].version) for name, _ in FUSABLE} == FUSABLE


def test_an_operation_that_this_release_would_not_make_is_not_folded():
    document = component_document(literal("ab").regex_extract("(a)", group=1).node)
    document["nodes"][-1]["params"]["group"] = 5
    root = component_from_document(document)
    assert canonicalize(root) == root
    with pytest.raises(OtherRelease, match="does not take"):
        compile_plan({"it": root})


def chain(op, columns):
    """``c0 | c1 | ...`` or the least of columns, each in brackets with all before it."""
    found = columns[0]
    for column in columns[1:]:
        found = found | column if op == "or" else minimum(found, column)
    return found


@pytest.mark.parametrize("op", ["or", "minimum"])
def test_chains_take_work_that_grows_with_their_nodes(op):
    work = {}
    for count in (500, 1_000, 2_000):
        columns = [boolean(f"c{i}") if op == "or" else int64(f"c{i}") for i in range(count)]
        forms = CanonicalForms()
        root = forms.of(chain(op, columns).node)
        assert len(root.args) == count
        work[count] = forms.visited, forms.encoded
    assert work == {count: (2 * count - 1, count) for count in work}


def test_a_model_visits_what_its_inputs_share_once():
    model = Model("many", client="a", label="y")
    shared = float32("x")
    for _ in range(200):
        shared = (shared + 1.5).log1p()
    for i in range(400):
        model.input(f"i{i}", shared * float(i))
    assert model.forms.visited == 1 + 200 * 2 + 1 + 400 * 2


P, Q = boolean("p"), boolean("q")


def deep(build, start, count):
    for step in range(count):
        start = build(start, step)
    return start


@pytest.mark.slow
def test_depth_is_no_limit():
    built = deep(lambda x, i: (x | P) if i % 2 else (x & Q), boolean("b"), 50_000)
    forms = CanonicalForms()
    root = forms.of(built.node)
    assert forms.visited == 50_003
    assert forms.encoded <= 100_000
    assert sum(1 for _ in topological([root])) == 50_003


@pytest.mark.parametrize(
    "expression",
    [
        lambda: deep(lambda x, i: (x | P) if i % 2 else (x & Q), boolean("b"), 5_000),
        lambda: deep(lambda x, i: x.scale(2.0, 1.0), int64("n"), 5_000),
        lambda: deep(lambda x, i: x.cast("int64"), int64("n"), 5_000),
        lambda: deep(lambda x, i: minimum(x, int64(f"c{i % 3}")).cast("int64"), int64("n"), 5_000),
        lambda: deep(lambda x, i: x.head(i + 1), text("a").unigrams(), 5_000),
        lambda: deep(lambda x, i: x | x, boolean("b"), 5_000),
    ],
    ids=["alternating", "scale", "cast", "minimum", "head", "doubled"],
)
def test_depth_is_no_limit_to_what_reads_components(expression):
    built = expression()
    root = canonicalize(built.node)
    assert component_from_document(component_document(root)) == root
    assert repr(built)
    assert raw_columns(built.node)
    assert len(shape_identity(built.node)) == 64
    compile_plan({"it": root})


def test_a_list_joined_with_itself_over_and_over_is_refused():
    doubled = deep(lambda x, i: concat(x, x), text("a").unigrams(), 60)
    with pytest.raises(InputError, match="at most 1,000,000 arguments"):
        canonicalize(doubled.node)
