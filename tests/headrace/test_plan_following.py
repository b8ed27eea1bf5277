"""With which plan a run begins whose plan follows its data."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from headrace.cli import plan_following
from headrace.cli.plan_following import plan_feedback
from tests.trainer.job.feedback.scenes import EVENTS, FEATURES, PRICING, by_tables, long_lists, sampled
from trainer.errors import ConfigError
from trainer.job.control.job_files import JobFiles
from trainer.job.feedback.plan_feedback import name_of
from trainer.job.feedback.replanning import SLACK
from trainer.planning.plan import PartitionPlan, Slice, TablePlan
from trainer.planning.topologies import topology_of

EVEN, UNEVEN = by_tables("f0", "f1", "f2"), by_tables("f0")


@pytest.fixture
def run(tmp_path):
    """What is prepared of a run of the features of the scenes, and the folder of its job."""
    config = SimpleNamespace(
        deep=True, run_dir=str(tmp_path / "run"), rows_of_step=lambda hosts: EVENTS // 2 * hosts, pruning=None
    )
    return SimpleNamespace(
        config=config,
        layout=SimpleNamespace(features=FEATURES),
        saved=None,
        head=None,
        solution=SimpleNamespace(
            inputs=[SimpleNamespace(name=one.name, fingerprint=f"of {one.name}") for one in FEATURES]
        ),
    )


@pytest.fixture
def begin(run, tmp_path, monkeypatch):
    """Begins the run with ``possible`` plans and a plan of the ``statistics``."""
    begun = []

    def work(*, possible=(EVEN, UNEVEN), statistics=None, hosts=2):
        monkeypatch.setattr(plan_following, "_is_possible", lambda prepared, hosts, plan: plan in possible)
        monkeypatch.setattr(plan_following, "_planned", lambda warehouse, prepared, pricing: statistics)
        files = JobFiles(tmp_path / "job")
        files.make()
        begun.append(plan_feedback(None, run, files, hosts))
        return begun[-1]

    yield work
    for one in begun:
        one.close()


def saved(plan, number):
    """A commit by a plan, of ten steps an epoch."""
    return SimpleNamespace(partition=plan, number=number, progress=SimpleNamespace(step=10 * number))


def newest(feedback):
    change = feedback.log.changes[-1]
    return change.plan, change.reason, change.commit


def test_a_new_run_begins_with_the_plan_of_the_statistics_if_hosts_can_hold_it(begin, run, tmp_path):
    for number, (options, plan) in enumerate(
        [({"statistics": EVEN}, EVEN), ({"statistics": EVEN, "possible": ()}, None), ({}, None)]
    ):
        run.config.run_dir = str(tmp_path / str(number))
        found = begin(**options)
        assert newest(found) == (name_of(plan), "statistics", 0)
        assert found.plan == plan
        assert found._pricing == PRICING
        assert begin(**options).log == found.log, "what was decided is not decided again"


def test_a_run_goes_on_with_the_plan_of_its_commit_if_hosts_can_hold_it(begin, run, tmp_path):
    for number, (stored, options, plan) in enumerate(
        [
            (UNEVEN, {}, UNEVEN),
            (UNEVEN, {"possible": (EVEN,)}, None),
            (None, {}, None),
            (None, {"possible": (None,)}, None),
        ]
    ):
        run.config.run_dir = str(tmp_path / str(number))
        run.saved = saved(stored, 7)
        reason = "commit" if plan is stored else "hosts"
        assert newest(begin(statistics=EVEN, **options)) == (name_of(plan), reason, 7)


def test_a_log_is_left_where_the_run_was_trained_by_another_plan_since(begin, run):
    """Such as by ``--plan FILE``, or by rows that are spread; what was changed before stays in it."""
    begin(statistics=EVEN)
    run.saved = saved(EVEN, 3)
    assert len(begin().log.changes) == 1, "the run's own plan"
    run.saved = saved(UNEVEN, 9)
    other = begin()
    assert [one.reason for one in other.log.changes] == ["statistics", "commit"]
    assert newest(other) == (name_of(UNEVEN), "commit", 9)
    assert (other.log.looked_at, other.log.counted_step) == (9, 90)
    run.saved = saved(EVEN, 9)
    assert begin().log == other.log, "the tables had not moved to the newest plan yet"


def test_a_plan_that_was_decided_before_is_left_where_hosts_cannot_hold_it(begin):
    assert begin(statistics=EVEN).plan == EVEN
    other = begin(statistics=UNEVEN, possible=(UNEVEN,))
    assert newest(other) == (name_of(UNEVEN), "statistics", 0)
    spread = begin(possible=())
    assert newest(spread) == (name_of(None), "statistics", 0)
    assert begin(statistics=EVEN).log == spread.log, "rows that are spread are possible with any hosts"


@pytest.mark.parametrize("change", [{"deep": False}, {"features": ()}])
def test_a_model_without_tables_has_no_plan(begin, run, change):
    run.config.deep = change.get("deep", True)
    run.layout.features = change.get("features", FEATURES)
    with pytest.raises(ConfigError, match="must place embedding tables"):
        begin()


def test_hosts_hold_what_the_checks_of_plans_allow(run, monkeypatch):
    """One shape of tables, as many hosts as the plan has cores, and rows of pruned tables as a whole."""
    config, layout = SimpleNamespace(deep=True, pruning=None, hashed={}), SimpleNamespace(features=FEATURES)
    prepared = SimpleNamespace(config=config, layout=layout, head=None)
    monkeypatch.setattr("trainer.run.weights.run_partition.check_pruned_hosts", lambda *given: None)
    monkeypatch.setattr("trainer.run.weights.run_partition.check_tables", lambda *given: None)
    assert plan_following._is_possible(prepared, 2, EVEN)
    assert not plan_following._is_possible(prepared, 3, EVEN)
    half = tuple(Slice(32 * k, 32, (k,)) for k in (0, 1))
    columns = PartitionPlan(2, (TablePlan("f0", 50_000, 64, half), *EVEN.tables[1:]))
    assert plan_following._is_possible(prepared, 2, columns)
    config.pruning = object()
    assert plan_following._is_possible(prepared, 2, EVEN)
    assert not plan_following._is_possible(prepared, 2, columns), "rows in slices of columns are not pruned"
    config.pruning = None

    def refuse(*given):
        raise ConfigError("no")

    for name in ("check_pruned_hosts", "check_tables"):
        with monkeypatch.context() as patched:
            patched.setattr(f"trainer.run.weights.run_partition.{name}", refuse)
            assert not plan_following._is_possible(prepared, 2, EVEN)


def planned(run, monkeypatch, known, pricing=PRICING):
    @contextmanager
    def read():
        yield "connection"

    def statistics(connection, fingerprints):
        assert connection == "connection"
        assert fingerprints == {one.name: f"of {one.name}" for one in FEATURES}
        return known

    monkeypatch.setattr(plan_following, "statistics_of_inputs", statistics)
    return plan_following._planned(SimpleNamespace(catalog=SimpleNamespace(read=read)), run, pricing)


def test_the_statistics_have_a_plan_if_it_is_better_than_spreading_rows(run, monkeypatch):
    known = sampled(long_lists("f0", "f3"), 1)
    facts = PRICING.facts(known)
    spread = PRICING.loads(None, facts).step_secs

    class Priced:
        """Prices the best plan at a share of the price of rows that are spread."""

        features, facts = PRICING.features, staticmethod(PRICING.facts)

        def __init__(self, share):
            self._share = share

        def best(self, facts):
            return None if self._share is None else EVEN

        def loads(self, plan, facts):
            return SimpleNamespace(step_secs=spread if plan is None else spread * self._share)

    shares = {0.5: EVEN, 1 - SLACK - 1e-6: EVEN, 1 - SLACK + 1e-6: None, 1.5: None, None: None}
    assert [planned(run, monkeypatch, known, Priced(one)) for one in shares] == list(shares.values())
    del known["f4"]
    assert planned(run, monkeypatch, known, Priced(0.5)) is None, "without statistics of all features"
    assert topology_of("cpu:2") == PRICING.topology
