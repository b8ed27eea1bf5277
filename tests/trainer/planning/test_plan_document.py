"""Documents of plans: read as they were written, and refused when they were not written by Headrace."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.planning.changed_documents import VALUES, changed_bytes
from tests.trainer.planning.plans import plans
from trainer.errors import ConfigError
from trainer.planning.plan import Slice, TablePlan, cyclic_plan
from trainer.planning.plan_document import plan_bytes, plan_fingerprint, read_about, read_plan


@pytest.mark.medium
@given(plans())
def test_a_plan_is_read_as_it_was_written(plan):
    data = plan_bytes(plan, {"made_for": "v5p:2x2x1"})
    assert read_plan(data, "plan.json") == plan
    assert read_about(data, "plan.json") == {"made_for": "v5p:2x2x1"}


@pytest.mark.medium
def test_a_plan_of_a_pod_is_small():
    plan = cyclic_plan([(f"t{k}", 1_000_000, 64) for k in range(612)], 1024)
    assert len(plan_bytes(plan)) < 300_000


def test_the_fingerprint_is_stable():
    """The fingerprints of stored plans must not change with a release."""
    plan = cyclic_plan([("t", 10, 4)], 2)
    assert plan_fingerprint(plan) == "a45a5a0dc9b9689a5cf8a02617603cc5b4af94faa018400fcff71ccecfaacf0c"
    assert plan_fingerprint(cyclic_plan([("t", 10, 4)], 3)) != plan_fingerprint(plan)


PLAN = cyclic_plan([("t", 10, 4), ("u", 7, 8)], 2)


@pytest.mark.medium
@given(st.data())
@settings(max_examples=scaled(3000))
def test_changed_bytes_are_refused_or_harmless(data):
    """A changed document is refused with one error, or says the same."""
    assert _outcome(changed_bytes(data, plan_bytes(PLAN))) in (PLAN, "plan.json")


def _outcome(data):
    try:
        return read_plan(data, "plan.json")
    except ConfigError as error:
        return error.where[: len("plan.json")]


@pytest.mark.medium
@given(st.sampled_from(["cores", "tables", "stacks", "fingerprint", "format"]), VALUES)
@settings(max_examples=scaled(1000))
def test_other_values_are_refused(member, value):
    document = json.loads(plan_bytes(PLAN))
    if document[member] == value:
        return
    document[member] = value
    with pytest.raises(ConfigError):
        read_plan(json.dumps(document).encode(), "plan.json")


def test_a_huge_run_of_cores_takes_no_memory():
    document = json.loads(plan_bytes(PLAN))
    document["tables"][0]["slices"][0]["cores"] = [[0, 2**40]]
    with pytest.raises(ConfigError, match="a whole number from 0 to 16384"):
        read_plan(json.dumps(document).encode(), "plan.json")


def test_deep_nesting_is_refused():
    with pytest.raises(ConfigError, match="must be JSON"):
        read_plan(b"[" * 100_000, "plan.json")


def test_a_replicated_table_is_kept():
    table = TablePlan("t", 3, 4, (Slice(0, 4, (0, 1)),), is_replicated=True)
    plan = type(PLAN)(2, (table,))
    assert read_plan(plan_bytes(plan), "plan.json").tables[0].partition == "replicated"
