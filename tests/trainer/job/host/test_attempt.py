"""Batches do not depend on where attempts end, nor, where hosts share them, on the number of hosts; every event is trained once."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.synthetic import Synthetic, config
from tests.trainer.thread_exchange import on_hosts
from trainer.checkpoints.commit_manifest import CarriedPlaces, JobPosition
from trainer.errors import AttemptOver, ConfigError, NonFiniteLoss, TornCheckpoint
from trainer.job.host.attempt import Attempt, AttemptTools, TrainedState
from trainer.job.host.epoch_files import EpochFiles
from trainer.job.host.job_data import JobData
from trainer.job.host.unit_gate import UnitGate
from trainer.run.batch_files.stretch import Stretches
from trainer.run.batch_files.stretch_files import StretchFiles
from trainer.run.preparation.due_places import DuePlaces
from trainer.run.preparation.job_plan import JobPlan, plan_job
from trainer.run.preparation.preparation import prepare_run
from trainer.run.reading.columns import take_events
from trainer.run.reading.unit_buffer import UnitBuffer
from trainer.run.reading.unit_fetching import LOCAL, LocalFetcher
from trainer.run.reading.unit_reader import UnitReader
from trainer.run.weights.dense_step import DenseStep, TableGradients
from trainer.run.weights.run_state import RunProgress
from trainer.run.weights.saved_run import SavedRun
from trainer.run.weights.step_pipeline import StepPipeline
from trainer.scheduling.holds import ErrorClass, classify, describe_error
from trainer.scheduling.orders import BEGINNING, StartEpoch
from trainer.tables.statistics.batch_sampler import BatchSampler
from transforms.errors import DataError, StorageError
from warehouse.files.batch_files.folder import BatchFolder

SYNTHETIC = Synthetic(3, 40)
BATCH_ROWS = 16
PER_HOST = {"batch_rows_per_host": True}
NO_SAMPLER = BatchSampler((), share=0.0, seed=0)


class Recorder:
    """Weights that record what is trained."""

    idle_units = None

    def __init__(self):
        self.batches, self.updated = [], 0
        self.events = []

    def train(self, batch):
        own = [(span.key, event) for span in batch.spans for event in np.arange(10_000)[span.events].tolist()]
        assert len(own) == batch.rows
        self.events.append(own)
        self.batches.append(
            (batch.labels.tobytes(), batch.dense.tobytes(), batch.ids.ids.tobytes(), batch.ids.offsets.tobytes())
        )
        return np.linspace(-1, 1, len(batch.labels), dtype=np.float32)[: batch.rows]

    def steps(self, staleness, first_step):
        return StepPipeline(self, staleness)

    def begin_look_up(self, batch):
        return lambda: batch

    def send(self, batch, looked_up):
        assert looked_up is batch

    def differentiate(self, batch, looked_up):
        assert looked_up is batch
        return DenseStep(self.train(batch), TableGradients(np.zeros(0), np.zeros(0)))

    def apply_dense(self, batch, step):
        return step.gradients

    def update_tables(self, batch, gradients):
        self.updated += 1


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    return plan_of(tmp_path_factory.mktemp("run"), passes=2)


@pytest.fixture(scope="module")
def shuffled(tmp_path_factory):
    return plan_of(tmp_path_factory.mktemp("run"), passes=2, shuffle_events=3 * BATCH_ROWS)


@pytest.fixture(scope="module")
def stale(tmp_path_factory):
    return plan_of(tmp_path_factory.mktemp("run"), passes=2, staleness=3)


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """Each host has batches of its own."""
    return plan_of(tmp_path_factory.mktemp("run"), passes=2, **PER_HOST)


@pytest.fixture(scope="module")
def own_shuffled(tmp_path_factory):
    return plan_of(tmp_path_factory.mktemp("run"), passes=2, shuffle_events=3 * BATCH_ROWS, **PER_HOST)


@pytest.fixture(scope="module")
def every(plan, shuffled, stale, own, own_shuffled):
    """Plans of all kinds."""
    return plan, shuffled, stale, own, own_shuffled


@pytest.fixture(scope="module")
def shared(plan, shuffled, stale):
    """Plans whose hosts share each batch."""
    return plan, shuffled, stale


def plan_of(run_dir, *, unit_rows=23, hosts=2, shuffle_events=0, **options):
    options = {"batch_rows": BATCH_ROWS, "partitions_per_epoch": 1, **options}
    prepared = prepare_run(SYNTHETIC.solution, config(run_dir, **options), SYNTHETIC.read_labels, on_skip=pytest.fail)
    content = plan_job(prepared, unit_rows=unit_rows, hosts=hosts, shuffle_events=shuffle_events).to_bytes()
    return JobPlan.from_bytes(content, "plan")


class Hosts:
    """The hosts of a job in threads, from attempt to attempt."""

    def __init__(self, plan, hosts):
        self.data, self.hosts = JobData(plan, "run"), hosts
        self.plan = plan
        self.next_unit, self.attempt = plan.units.first_unit, 0
        self.states = [self.fresh(rank) for rank in range(hosts)]
        self.weights = [Recorder() for _ in range(hosts)]
        self.fetched = 0

    def files_of(self, rank):
        """The files of a host; none."""

    def fresh(self, rank):
        progress = RunProgress(segments=self.plan.segments, planned_rows=dict(self.plan.planned_rows))
        return TrainedState(progress, self.plan.head.collector(), self.data.ledger_before(rank))

    def run(self, end_at=None, stop=None, cancel=False):
        """Train an attempt to ``stop``; with ``end_at``, it is ordered to end when the first host has done so many steps."""
        self.attempt += 1
        stop = self.plan.stop_unit if stop is None else stop
        names = tuple(f"h{k}" for k in range(self.hosts))
        order = StartEpoch(self.attempt, 0, self.next_unit, stop, names, None, BEGINNING, "plan")
        gates = [UnitGate(self.attempt, self.next_unit, stop) for _ in names]
        steps, lock = [0], threading.Lock()

        def on_step(events):
            with lock:
                steps[0] += 1
                if end_at is not None and steps[0] == end_at:
                    threading.Thread(target=self.end, args=(gates, cancel, stop)).start()

        if end_at == 0:
            self.end(gates, cancel, stop)

        def read(solution, fragment):
            self.fetched += 1
            return with_rows(SYNTHETIC.read(fragment))

        reader = UnitReader(lambda digest: SYNTHETIC.solution, read, kept_bytes=1 << 30)

        def work(exchange):
            rank = exchange.rank
            attempt = None
            buffer = UnitBuffer((), lambda name: LocalFetcher(reader), lambda *unit: attempt.decode(*unit))
            try:
                buffer.set_readers([LOCAL])
                tools = AttemptTools(
                    self.data, self.weights[rank], buffer, exchange, gates[rank], NO_SAMPLER, on_step,
                    files=self.files_of(rank),
                )  # fmt: skip
                attempt = Attempt(order, self.states[rank], tools)
                buffer.restart(attempt.requests())
                return attempt.run()
            finally:
                buffer.close()

        found = set(on_hosts(self.hosts, work))
        assert len(found) == 1
        before, self.next_unit = self.next_unit, found.pop()
        assert self.next_unit > before or not steps[0], (
            "an epoch that has trained nothing but carried events is committed, too"
        )

    def end(self, gates, cancel, stop):
        if cancel:
            for gate in gates:
                gate.give_up()
            return
        most = max(gate.ask() for gate in gates)
        for gate in gates:
            gate.end(min(max(most, self.next_unit), stop))

    @property
    def position(self):
        """The position of a commit."""
        carried = tuple(CarriedPlaces(rank, *one) for rank, state in enumerate(self.states) for one in state.carried)
        names = tuple(f"h{rank}" for rank in range(self.hosts))
        first = self.states[0]
        return JobPosition(
            self.attempt, self.next_unit, "plan", names, carried, "test", first.epoch_steps, first.epoch_events
        )

    @property
    def is_trained(self):
        return self.next_unit == self.plan.stop_unit and not self.position.carried

    def counts(self):
        keys = self.plan.units.keys
        return np.concatenate([np.sum([state.ledger.of(key) for state in self.states], axis=0) for key in keys])


def with_rows(table):
    import pyarrow as pa

    return table.append_column("__row__", pa.array(np.arange(table.num_rows)))


def next_stop(plan, unit):
    """The natural end of the epoch of a unit."""
    return next(stop for stop in plan.stops if stop > unit)


def trained_straight(plan, hosts):
    job = Hosts(plan, hosts)
    while not job.is_trained:
        job.run(stop=next_stop(plan, job.next_unit))
    return job


@pytest.mark.parametrize("hosts", [1, 2])
def test_steps_ahead_are_done_before_an_epoch_ends(plan, stale, hosts):
    serial, ahead = Hosts(plan, hosts), Hosts(stale, hosts)
    for job in (serial, ahead):
        while not job.is_trained:
            job.run(3)
            assert all(one.updated in (0, len(one.batches)) for one in job.weights)
    assert [one.batches for one in ahead.weights] == [one.batches for one in serial.weights]
    assert all(one.updated == len(one.batches) for one in ahead.weights)
    assert ahead.states[0].progress.history == serial.states[0].progress.history


@pytest.mark.parametrize("hosts", [1, 2, 3])
def test_one_attempt_over_all_epochs_equals_one_a_epoch(plan, hosts):
    straight, whole = trained_straight(plan, hosts), Hosts(plan, hosts)
    whole.run()
    assert whole.is_trained
    assert [one.batches for one in whole.weights] == [one.batches for one in straight.weights]
    assert (straight.counts() == 2).all()
    history = straight.states[0].progress.history
    assert history == whole.states[0].progress.history
    assert [one.epoch for one in history] == list(range(6))
    assert sum(one.scores.events for one in history) == 2 * sum(table.num_rows for table in SYNTHETIC.tables.values())


@pytest.mark.parametrize("planned", [1, 4])
@pytest.mark.parametrize("hosts", [1, 2, 3, 5])
@pytest.mark.parametrize("per_host", [False, True])
def test_every_host_has_events_in_every_step_but_the_last_of_an_epoch(tmp_path, hosts, planned, per_host):
    """Epochs of 97 events in batches of 4, or of 4 on each host, cut for as many hosts or for others."""
    options = {"batch_rows": 4 if per_host else 6, "batch_rows_per_host": per_host}
    plan = plan_of(tmp_path, unit_rows=1 << 16, hosts=planned, passes=2, **options)
    job = trained_straight(plan, hosts)
    events = [one.scores.events for one in job.states[0].progress.history]
    fewest = sum(-(-count // (4 * hosts if per_host else 6)) for count in events)
    steps = job.states[0].host_steps
    assert list(steps) == [f"h{rank}" for rank in range(hosts)]
    assert {one.taken for one in steps.values()} == {fewest}
    assert min(one.steps for one in steps.values()) >= fewest - len(events)
    assert all(state.host_steps == steps for state in job.states)
    assert (job.counts() == 2).all()


@settings(max_examples=scaled(8))
@given(st.integers(1, 3), st.lists(st.integers(0, 9), max_size=5), st.booleans(), st.integers(0, 4))
def test_early_ends_change_no_batch(every, hosts, ends, whole, kind):
    plan = every[kind]
    straight, job = trained_straight(plan, hosts), Hosts(plan, hosts)
    for end_at in ends:
        if job.next_unit < plan.stop_unit:
            job.run(end_at, None if whole else next_stop(plan, job.next_unit))
    while not job.is_trained:
        job.run()
    assert [one.batches for one in job.weights] == [one.batches for one in straight.weights]
    assert (job.counts() == 2).all()
    assert job.states[0].progress.history == straight.states[0].progress.history
    assert job.states[0].host_steps == straight.states[0].host_steps


@settings(max_examples=scaled(5))
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 12), st.integers(0, 4))
def test_carried_events_move_to_another_number_of_hosts(every, before, after, end_at, kind):
    plan = every[kind]
    job = Hosts(plan, before)
    job.run(end_at)
    position, counts = job.position, job.counts()
    other = Hosts(plan, after)
    other.next_unit = job.next_unit
    for rank, state in enumerate(other.states):
        state.carried = plan.carried_of(position, rank, after)
        state.progress.epochs_done = job.states[0].progress.epochs_done
        state.epoch_steps, state.epoch_events = job.states[0].epoch_steps, job.states[0].epoch_events
    while not other.is_trained:
        other.run()
    assert (counts + other.counts() == 2).all()
    if kind < 3:
        straight = trained_straight(plan, 1)
        assert [*steps_of(job), *steps_of(other)] == steps_of(straight)


def goes_on(job, plan, hosts):
    """Hosts that go on with a plan from where those of a job ended."""
    other, position, before = Hosts(plan, hosts), job.position, job.states[0]
    other.next_unit, other.attempt = job.next_unit, job.attempt
    for rank, state in enumerate(other.states):
        state.carried = plan.carried_of(position, rank, hosts)
        state.progress.epochs_done, state.progress.history = before.progress.epochs_done, list(before.progress.history)
        state.epoch_steps, state.epoch_events = position.epoch_steps, position.epoch_events
    other.states[0].collector = before.collector
    return other


@pytest.mark.medium
@settings(max_examples=scaled(12))
@given(
    st.integers(0, 4),
    st.lists(
        st.tuples(st.sampled_from([4, 6, 12, 24, 48]), st.integers(1, 3), st.integers(0, 9)), min_size=2, max_size=4
    ),
)
def test_a_batch_changes_anywhere_in_an_epoch(every, kind, parts):
    """Each event is trained as often as there are passes, batches are as long as they are asked for, and scores have all events."""
    plan, counted, job, steps = every[kind], 0, None, []
    for rows, hosts, end_at in parts:
        now = replace(plan, config={**plan.config, "batch_rows": rows})
        job = Hosts(now, hosts) if job is None else goes_on(job, now, hosts)
        job.run(end_at)
        counted = counted + job.counts()
        steps.append((rows, steps_of(job)))
        if job.is_trained:
            break
    while not job.is_trained:
        job = goes_on(job, job.plan, hosts)
        job.run()
        counted = counted + job.counts()
        steps.append((rows, steps_of(job)))
    assert (counted == 2).all()
    ends = len(job.states[0].progress.history)
    assert sum(one.scores.events for one in job.states[0].progress.history) == counted.sum()
    if kind < 3:
        short = sum(len(one) < rows for rows, found in steps for one in found)
        assert all(len(one) <= rows for rows, found in steps for one in found)
        assert short <= ends, "only the last batch of an epoch is short, wherever the batch has changed"
        if kind != 1:
            assert [event for _, found in steps for one in found for event in one] == [
                event for one in steps_of(trained_straight(plan, 1)) for event in one
            ]


def test_a_position_of_an_earlier_release_has_batches_of_one_size(tmp_path):
    plan = plan_of(tmp_path)
    job = JobPosition(1, 2, "plan", ("h0",), (), "test", 3)
    saved = SavedRun("", plan.identity, RunProgress(), None, {}, job=job)
    assert saved.epoch_events == 3 * BATCH_ROWS
    assert replace(saved, job=replace(job, epoch_events=40)).epoch_events == 40
    assert replace(saved, job=None).epoch_events == 0


def steps_of(job):
    """The events of each step, of the hosts by rank."""
    return [[event for own in step for event in own] for step in zip(*(one.events for one in job.weights), strict=True)]


@pytest.mark.medium
@settings(max_examples=scaled(10))
@given(st.integers(2, 20), st.integers(0, 2), st.lists(st.integers(0, 9), max_size=3))
def test_any_number_of_hosts_trains_the_same_steps(shared, hosts, kind, ends):
    """Of events in the same order, whose parts differ by one event at most; wherever attempts end."""
    alone, job = trained_straight(shared[kind], 1), Hosts(shared[kind], hosts)
    for end_at in ends:
        if job.next_unit < shared[kind].stop_unit:
            job.run(end_at)
    while not job.is_trained:
        job.run()
    assert steps_of(job) == steps_of(alone)
    for parts in zip(*(one.events for one in job.weights), strict=True):
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert all(len(step) <= BATCH_ROWS for step in steps_of(job))
    assert job.states[0].progress.step == alone.states[0].progress.step
    assert [one.scores.events for one in job.states[0].progress.history] == [
        one.scores.events for one in alone.states[0].progress.history
    ]
    assert (job.counts() == 2).all()


@pytest.mark.parametrize("kind", ["in order", "shuffled"])
def test_one_host_has_the_batches_of_hosts_with_batches_of_their_own(plan, shuffled, own, own_shuffled, kind):
    one, other = (plan, own) if kind == "in order" else (shuffled, own_shuffled)
    assert trained_straight(one, 1).weights[0].batches == trained_straight(other, 1).weights[0].batches


def test_other_events_than_planned_are_refused(plan):
    """A plan that says of an event which has a label that it has none: its place is another host's."""
    rows = int(plan.fragment_rows[0])
    bits = np.packbits(np.arange(rows) != 3)
    wrong = JobPlan.from_bytes(replace(plan, trainable={0: bits}).to_bytes(), "plan")
    with pytest.raises(TornCheckpoint, match="due events"):
        DuePlaces(wrong, lambda key: np.zeros(1000, np.uint8))._rows_of(0)


def test_a_reader_that_delivers_other_events_is_refused(plan):
    job = Hosts(plan, 1)
    decode = job.data.decode
    job.data.decode = lambda request, unit: take_events(found := decode(request, unit), np.arange(found.rows - 1))
    with pytest.raises(DataError, match="that the plan counts"):
        job.run()


def test_shuffled_batches_have_other_events_in_windows(plan, shuffled):
    straight, job = trained_straight(plan, 1), trained_straight(shuffled, 1)
    in_order, drawn = ([labels for labels, *_ in one.weights[0].batches] for one in (straight, job))
    assert in_order != drawn
    window = 3
    labels = [np.frombuffer(b"".join(one[:window]), np.float32) for one in (in_order, drawn)]
    assert (np.sort(labels[0]) == np.sort(labels[1])).all(), "a window holds the events of its place in the stream"


def test_a_window_must_be_whole_batches(tmp_path):
    with pytest.raises(ConfigError, match="whole batches"):
        plan_of(tmp_path, shuffle_events=BATCH_ROWS + 1)


def test_an_attempt_that_is_given_up_says_so(plan):
    with pytest.raises(AttemptOver):
        Hosts(plan, 2).run(3, cancel=True)


def test_a_bad_batch_is_kept_and_named(plan):
    job = Hosts(plan, 1)
    job.weights[0].train = lambda batch: np.full(batch.rows, np.nan, np.float32)
    with pytest.raises(NonFiniteLoss) as error:
        job.run()
    assert error.value.where == "attempt 1, step 0"


def test_a_second_visit_of_an_event_is_not_its_first_label(plan):
    """Hosts that see an event in another pass only do not count its label again."""
    straight, alone = trained_straight(plan, 2), trained_straight(plan, 1)
    for key in plan.units.keys:
        sums = sum(state.ledger.labels_of(key) or 0 for state in straight.states) % 2**64
        assert sums == alone.states[0].ledger.labels_of(key)


def test_a_plan_of_partly_trained_events_trains_the_rest(own):
    """Where each host has batches of its own, a plan counts due events only about."""
    job = Hosts(own, 1)
    job.run(4)
    trained = job.states[0].ledger
    counts = trained.counts()
    again = replace(own, counts=counts)
    rest = Hosts(JobPlan.from_bytes(again.to_bytes(), "plan"), 2)
    while not rest.is_trained:
        rest.run()
    assert (rest.counts() == 2).all()


def with_files(home, plan, hosts, told):
    """A job whose hosts keep their parts of batches in files of ``home``, as :class:`Hosts` it is."""

    class Kept(Hosts):
        def __init__(self, *args):
            super().__init__(*args)
            self.kept = {}

        def files_of(self, rank):
            if rank not in self.kept:
                files = StretchFiles(BatchFolder(home, 1 << 30), told.append)
                rows = self.data.config.rows_of_host(self.hosts)
                stretches = Stretches(SYNTHETIC.solution, self.data.layout, self.plan.head, rows)
                self.kept[rank] = EpochFiles(files, stretches, SYNTHETIC.solution)
            return self.kept[rank]

        def close(self):
            """The hosts end."""
            for files in self.kept.values():
                files.close()
            self.kept = {}

    return Kept(plan, hosts)


def files_in(home):
    return sorted(path for path in home.rglob("*") if path.is_file())


@pytest.mark.parametrize("kind", [0, 1, 2])
@pytest.mark.parametrize("hosts", [1, 2, 3])
def test_parts_from_files_are_those_of_readers(tmp_path, shared, hosts, kind):
    """In the first run, which writes, in its second pass, and in another run; in order, shuffled and ahead."""
    plan, told = shared[kind], []
    straight = trained_straight(plan, hosts)
    for number in range(2):
        job = with_files(tmp_path, plan, hosts, told)
        while not job.is_trained:
            job.run(stop=next_stop(plan, job.next_unit))
        job.close()
        assert [one.batches for one in job.weights] == [one.batches for one in straight.weights]
        assert [one.events for one in job.weights] == [one.events for one in straight.weights]
        assert (job.counts() == 2).all()
        history = job.states[0].progress.history
        assert [one.scores for one in history] == [one.scores for one in straight.states[0].progress.history]
        assert {one.batch_file for one in history} <= {path.stem for path in files_in(tmp_path)}
        assert "" not in {one.batch_file for one in history}
        epochs = 3 if not plan.shuffle_events else 6  # each pass has an order of its own
        assert len(files_in(tmp_path)) == epochs * hosts
        assert number == 0 or job.fetched == 0
    assert told == []


@settings(max_examples=scaled(6))
@given(st.integers(1, 3), st.lists(st.integers(0, 9), max_size=5), st.integers(0, 2), st.booleans())
def test_early_ends_change_no_batch_of_files(tmp_path_factory, shared, hosts, ends, kind, filled):
    """Attempts go on from any batch of a file that is there, and with a file that an earlier one has begun."""
    plan, home, told = shared[kind], tmp_path_factory.mktemp("home"), []
    straight = trained_straight(plan, hosts)
    if filled:
        job = with_files(home, plan, hosts, told)
        while not job.is_trained:
            job.run(stop=next_stop(plan, job.next_unit))
        job.close()
    job = with_files(home, plan, hosts, told)
    for end_at in ends:
        if job.next_unit < plan.stop_unit:
            job.run(end_at, next_stop(plan, job.next_unit))
    while not job.is_trained:
        job.run()
    job.close()
    assert [one.batches for one in job.weights] == [one.batches for one in straight.weights]
    assert (job.counts() == 2).all()
    assert len(files_in(home)) >= hosts  # also where attempts ended early: a file goes on with the next one
    assert not [path for path in files_in(home) if path.name.startswith(".")]
    assert told == []


def test_a_damaged_file_ends_the_attempt_and_the_next_one_reads_fragments(tmp_path, plan):
    told = []
    job = with_files(tmp_path, plan, 1, told)
    stop = next_stop(plan, job.next_unit)
    job.run(stop=stop)
    job.close()
    (path,) = files_in(tmp_path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    again = with_files(tmp_path, plan, 1, told)
    with pytest.raises(StorageError, match="stay as it was written") as caught:
        again.run(stop=stop)
    assert classify(describe_error(caught.value)) is ErrorClass.TRANSIENT
    again.close()
    assert files_in(tmp_path) == []
    final = with_files(tmp_path, plan, 1, told)
    final.run(stop=stop)
    assert final.weights[0].batches == job.weights[0].batches
    assert len(told) == 1
