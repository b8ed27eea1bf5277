"""Follows the data with the plan of a job's tables: prices plans after each commit, and changes the plan where that pays.

Commits are looked at in order, each once. The log has the step up to which steps are counted, so the steps of a commit that was removed before it was
read, or that has no sample, count by the sample of the next one.

What is decided is on disk before the controller hears of it: the plan's document, then the log of the run's plans, then the document of the job. So a
command that is killed in between, and begun again, goes on with the plan that was decided, and with the commit after the last one that it looked at.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace

from trainer.job.control.job_files import JobFiles
from trainer.job.control.messages import JobStatus
from trainer.job.feedback.epoch_prices import EpochPricing
from trainer.job.feedback.plan_log import PlanChange, PlanLog
from trainer.job.feedback.replanning import Candidate, EpochPrices, decide, with_candidate
from trainer.job.feedback.step_times import StepTimes
from trainer.job.launch.job_spec import JobSpec
from trainer.planning.feature_statistics import FeatureStatistics
from trainer.planning.plan import PartitionPlan
from trainer.planning.plan_document import find_partition, plan_bytes
from transforms.errors import HeadraceError, NotFound

#: The name of no plan: rows are spread over the hosts.
SPREAD = ""
#: The commits that wait for a decision; of more the oldest is dropped, whose steps count by the sample of the next one.
MOST_WAITING = 8
#: Plans by the digest of their documents.
Plans = dict[str, PartitionPlan | None]


@dataclass(frozen=True, slots=True)
class CommittedEpoch:
    """An epoch whose commit was published.

    Attributes:
        commit: its number.
        sampled: the statistics of features that hosts sampled in it, by feature.
        step: the optimizer steps of the run up to it.
        step_secs: measured, of a step; None: not measured.
        left_steps: that are still to be trained; None: no end is known.
    """

    commit: int
    sampled: Mapping[str, FeatureStatistics]
    step: int
    step_secs: float | None
    left_steps: float | None


def name_of(plan: PartitionPlan | None) -> str:
    """The digest of a plan's document."""
    return SPREAD if plan is None else hashlib.sha256(plan_bytes(plan)).hexdigest()


def after_epoch(
    log: PlanLog,
    plans: Plans,
    epoch: CommittedEpoch,
    pricing: EpochPricing,
    is_possible: Callable[[PartitionPlan], bool] = lambda plan: True,
) -> tuple[PlanLog, Plans]:
    """The log after an epoch, and the plans that it names. Pure.

    Args:
        log: of the run.
        plans: that the log names.
        epoch: that was committed.
        pricing: of the run.
        is_possible: whether hosts can hold the tables by a plan.
    """
    facts, current = pricing.facts(epoch.sampled), log.plan
    candidates = tuple(one for one in log.candidates if one.plan in plans)
    loads = {name: pricing.loads(plans[name], facts) for name in {current, *(one.plan for one in candidates)}}
    prices = {name: float(one.step_secs) for name, one in loads.items()}
    known = [one.pause_secs for one in log.changes if one.pause_secs is not None]
    cost = known[-1] if known else pricing.move_secs(facts)
    steps = max(0, epoch.step - (log.counted_step or 0))
    measured = log.measured_secs if epoch.step_secs is None else epoch.step_secs
    priced = EpochPrices(steps, measured, prices, {one.plan: cost for one in candidates}, epoch.left_steps)
    decision = decide(current, candidates, priced)
    chosen, imbalance = decision.moves_to, loads[current].imbalance
    if chosen is not None:
        log = log.with_change(
            PlanChange(
                chosen,
                "pays",
                epoch.commit,
                step_secs=prices[current],
                new_step_secs=prices[chosen],
                imbalance=imbalance,
                new_imbalance=loads[chosen].imbalance,
                saved_secs=decision.saved_secs,
                move_secs=cost,
                moved_bytes=pricing.moved_bytes(plans[current], plans[chosen], facts),
                measured_secs=measured,
            )
        )
        imbalance = loads[chosen].imbalance
    kept = decision.candidates
    if (best := pricing.best(facts)) is not None and is_possible(best):
        name = name_of(best)
        prices.setdefault(name, float(pricing.loads(best, facts).step_secs))
        kept = with_candidate(kept, name, prices, log.plan)
        plans = {**plans, name: best}
    named = {log.plan, *(one.plan for one in kept)}
    log = replace(
        log,
        looked_at=epoch.commit,
        looks=log.looks + 1,
        candidates=kept,
        imbalance=imbalance,
        counted_step=max(epoch.step, log.counted_step or 0),
    )
    return log, {name: plan for name, plan in plans.items() if name in named}


def after_epochs(
    log: PlanLog,
    plans: Plans,
    epochs: Sequence[CommittedEpoch],
    pricing: EpochPricing,
    is_possible: Callable[[PartitionPlan], bool],
) -> tuple[PlanLog, Plans]:
    """The log after several epochs, in order; see :func:`after_epoch`. Pure."""
    for epoch in epochs:
        log, plans = after_epoch(log, plans, epoch, pricing, is_possible)
    return log, plans


class PlanFeedback:
    """Changes the plan of a job while it trains. The thread of the job's supervisor calls all methods.

    Args:
        files: of the job.
        run_dir: whose log it keeps.
        pricing: of the run.
        is_possible: whether hosts can hold the tables by a plan.
        say: is called with a sentence about a change.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        files: JobFiles,
        run_dir: str,
        pricing: EpochPricing,
        *,
        is_possible: Callable[[PartitionPlan], bool] = lambda plan: True,
        say: Callable[[str], None] = lambda sentence: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._files, self._run_dir, self._pricing = files, run_dir, pricing
        self._is_possible, self._say, self._clock = is_possible, say, clock
        self._times, self._measured = StepTimes(), 0
        self._log = PlanLog.read(run_dir)
        self._plans = self._stored_plans()
        self._planner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="planner")
        self._planning: Future[tuple[PlanLog, Plans]] | None = None
        self._waiting: tuple[CommittedEpoch, ...] = ()
        self._newest = 0

    def _stored_plans(self) -> Plans:
        """The plans of the log whose documents are there. Those of a lost job folder are not, and are made again."""
        plans: Plans = {SPREAD: None}
        for name in {self._log.plan, *(one.plan for one in self._log.candidates)}:
            try:
                plans[name] = find_partition(name, self._files.read_document)
            except NotFound:
                continue
        return plans

    @property
    def log(self) -> PlanLog:
        """What was changed so far."""
        return self._log

    @property
    def plan(self) -> PartitionPlan | None:
        """The plan in force; None: rows are spread over the hosts."""
        return self._plans.get(self._log.plan)

    @property
    def has_plan(self) -> bool:
        """Whether the run has a plan, or spreads its rows, by its log."""
        return bool(self._log.changes) and self._log.plan in self._plans

    def has_trained(self, plan: PartitionPlan | None) -> bool:
        """Whether the newest commit of this log can be by a plan: the newest one, or the one before, if the run ended before the tables moved."""
        return name_of(plan) in {one.plan for one in self._log.changes[-2:]}

    def begin(self, plan: PartitionPlan | None, reason: str, commit: int, step: int) -> None:
        """Begin again with a plan, after a commit at a step; see :class:`PlanChange`. Raises :class:`~transforms.errors.StorageError`."""
        name = name_of(plan)
        candidates = (Candidate(SPREAD),) if name != SPREAD else ()
        log = replace(self._log, looked_at=commit, candidates=candidates, imbalance=0.0, counted_step=step)
        self._take(log.with_change(PlanChange(name, reason, commit)), {SPREAD: None, name: plan})

    def go_on(self, commit: int, step: int) -> None:
        """Go on with the plan in force; steps up to a commit at a step are counted if the log is of a release that did not say.

        Raises :class:`~transforms.errors.StorageError`.
        """
        if self._log.counted_step is None:
            self._take(replace(self._log, looked_at=commit, counted_step=step), self._plans)

    def see(self, status: JobStatus) -> None:
        """Look at a job: the times of its steps, and a decision that was made meanwhile."""
        self._times.see(status, self._clock())
        if self._planning is not None and self._planning.done():
            self._take_decision(self._planning)
        self._measure(status)
        self._plan_next()

    def committed(
        self, commit: int, attempt: int, step: int, sampled: Mapping[str, FeatureStatistics], left_steps: float | None
    ) -> None:
        """Look at the sample of a commit, in a thread, unless it was looked at before.

        Args:
            commit: its number. Commits come in order.
            attempt: that trained it.
            step: the optimizer steps of the run up to it.
            sampled: the statistics by feature.
            left_steps: that are still to be trained; None: no end is known.
        """
        if commit <= max(self._log.looked_at, self._newest):
            return
        self._newest = commit
        epoch = CommittedEpoch(commit, sampled, step, self._times.step_secs(attempt), left_steps)
        self._waiting = (*self._waiting, epoch)[-MOST_WAITING:]
        self._plan_next()

    def finish(self) -> None:
        """Wait until all commits that it was given are looked at, such as at the end of a job."""
        self._plan_next()
        while self._planning is not None:
            wait([self._planning])
            self._take_decision(self._planning)
            self._plan_next()

    def wanted(self, status: JobStatus) -> str:
        """The name of the plan by which hosts shall hold the tables."""
        return self._log.plan

    def close(self) -> None:
        """End the thread."""
        self._planner.shutdown(cancel_futures=True)

    def _plan_next(self) -> None:
        """Begin to look at all commits that wait, if none is being looked at."""
        if self._planning is None and self._waiting:
            epochs, self._waiting = self._waiting, ()
            self._planning = self._planner.submit(
                after_epochs, self._log, self._plans, epochs, self._pricing, self._is_possible
            )

    def _take_decision(self, planning: Future[tuple[PlanLog, Plans]]) -> None:
        self._planning = None
        try:
            log, plans = planning.result()
        except HeadraceError as error:  # the steps of its commits count by the next sample
            self._say(f"the plan of the tables was not looked at, training goes on: {error.what}")
        else:
            self._apply(log, plans)

    def _apply(self, log: PlanLog, plans: Plans) -> None:
        is_changed = log.plan != self._log.plan
        self._take(log, plans)
        if is_changed:
            change = log.changes[-1]
            self._say(
                f"the tables move after this epoch: by the other plan a step takes {change.new_step_secs / change.step_secs:.2f} of the time,"
                f" {change.saved_secs:.1f} s were lost, a move costs {change.move_secs:.1f} s"
            )

    def _take(self, log: PlanLog, plans: Plans) -> None:
        for plan in plans.values():
            if plan is not None:
                self._files.put_document(plan_bytes(plan))
        log.write(self._run_dir)
        self._log, self._plans = log, plans
        try:
            spec = JobSpec.read(self._files)
        except NotFound:
            return  # the job is not made yet
        if spec.partition != log.plan:
            replace(spec, partition=log.plan).write(self._files)

    def _measure(self, status: JobStatus) -> None:
        """Note what the newest change has cost and brought, once an attempt by it takes steps."""
        if self._planning is not None:  # its log will replace this one
            return
        if not self._log.changes or status.partition != self._log.plan or self._measured == status.attempt:
            return
        secs = self._times.step_secs(status.attempt)
        if secs is None:
            return
        self._measured, change = status.attempt, self._log.changes[-1]
        before = self._times.attempts.get(status.attempt - 1)
        is_first = before is not None and before.partition != self._log.plan and change.pause_secs is None
        pause_secs = self._times.pause_secs(status.attempt) if is_first else None
        self._take(self._log.with_measured(secs, pause_secs), self._plans)
