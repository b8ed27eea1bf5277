"""Where an iteration over a range begins: at the plan of all of it, or where states of an earlier iteration end."""

from __future__ import annotations

import json
from dataclasses import dataclass

from trainer.errors import RunMismatch
from trainer.run.loading.options import Share, StreamOptions
from trainer.run.loading.rest import plan_rest
from trainer.run.loading.state import FORMAT, MergedStates, StreamState, handed_out, next_batch, plan_of
from trainer.run.preparation.job_plan import JobPlan
from trainer.run.progress.identity import identity_of
from trainer.run.reading.stream import ReadFragment
from transforms.errors import DataError
from warehouse.solution.solution import ReadSolution


@dataclass(frozen=True)
class StreamBeginning:
    """The batches of an iteration.

    Attributes:
        content: the document of the plan.
        table_version: of the table, whose data the plan is of.
        first: the batches of the plan that were handed out before.
        share: whose state it continues; None: any share may begin here.
        steps: those that ``share`` has made.
    """

    content: bytes
    table_version: int
    first: int = 0
    share: Share | None = None
    steps: int = 0

    @property
    def plan(self) -> JobPlan:
        """The plan."""
        return plan_of(self.content)

    def state(self, solution_of: tuple[str, int], lanes: int, share: Share, steps: int) -> StreamState:
        """The state of a share after so many steps; ``solution_of``: the model and its version."""
        model, version = solution_of
        return StreamState(
            format=FORMAT,
            model=model,
            model_version=version,
            table_version=self.table_version,
            plan=self.content,
            lanes=lanes,
            first=self.first,
            rank=share.rank,
            world=share.world,
            worker=share.worker,
            workers=share.workers,
            steps=steps,
        )


def new_beginning(solution: ReadSolution, options: StreamOptions, read_labels: ReadFragment) -> StreamBeginning:
    """The beginning of a range of which nothing was handed out. Raises what :func:`plan_rest` raises."""
    return StreamBeginning(plan_rest(solution, options, read_labels).to_bytes(), solution.table_version)


def beginning_after(
    merged: MergedStates, solution: ReadSolution, options: StreamOptions, read_labels: ReadFragment
) -> StreamBeginning:
    """Where the states of all shares end, for any number of ranks and workers.

    Deterministic, so all ranks that have the same states and ``solution`` begin at the same place. Raises what :func:`plan_rest` raises.
    """
    state = merged.any_state
    number = next_batch(merged)
    if number is not None and not difference(plan_of(state.plan), state.lanes, solution, options):
        return StreamBeginning(state.plan, solution.table_version, number)
    plan = plan_rest(solution, options, read_labels, handed_out(merged))
    return StreamBeginning(plan.to_bytes(), solution.table_version)


def beginning_of_share(state: StreamState) -> StreamBeginning:
    """Where the state of one share ends, for the same share. Raises :class:`~transforms.errors.DataError` for an invalid plan."""
    plan_of(state.plan)
    return StreamBeginning(state.plan, state.table_version, state.first, state.share, state.steps)


def difference(plan: JobPlan, lanes: int, solution: ReadSolution, options: StreamOptions) -> str:
    """What keeps a plan from being continued with other data or options; "" if nothing does."""
    now = identity_of(solution, options.config())
    if plan.identity.data_digest != now.data_digest:
        return f"the data of {solution.table} in this range, as of version {solution.table_version}"
    before = {**_plain(plan.identity.config), "shuffle_events": plan.shuffle_events, "lanes": lanes}
    after = {**_plain(now.config), "shuffle_events": options.shuffle_events, "lanes": options.lanes}
    names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    return f"the options {', '.join(names)}" if names else ""


def check_continued(begin: StreamBeginning, lanes: int, solution: ReadSolution, options: StreamOptions) -> None:
    """Raise :class:`RunMismatch` unless an iteration with this data and these options can begin there."""
    if found := difference(begin.plan, lanes, solution, options):
        raise RunMismatch("a stream must continue with the options and data that it began with", value=f"other: {found}",
                          next_step="load the states of all ranks and workers: what is left then begins a new stream")  # fmt: skip
    rows = {f"{part.key}#{k}": one.rows for part in solution.partitions for k, one in enumerate(part.fragments)}
    for key, count in zip(begin.plan.units.keys, begin.plan.fragment_rows.tolist(), strict=True):
        if rows.get(key) != count:
            raise DataError("the plan of a loader state must have fragments of its data", value=key[:80])


def _plain(config: object) -> dict[str, object]:
    """Options as JSON has them."""
    plain: dict[str, object] = json.loads(json.dumps(config, default=dict))
    return plain
