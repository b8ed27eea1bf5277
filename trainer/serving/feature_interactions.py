"""How the features of a trained model interact, by its newest checkpoint and a sample of its data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TypeVar

from trainer.planning.towers.interactions import Interactions, InteractionSum
from trainer.run.preparation.preparation import fragment_refs
from trainer.run.progress.identity import check_inputs, identity_of, in_time_order
from trainer.run.reading.batches import make_batches
from trainer.run.reading.stream import ReadFragment, fragment_stream
from trainer.serving.trained import Trained
from transforms.errors import InputError
from warehouse.solution.solution import ReadSolution

T = TypeVar("T")

#: A sample is read from so many fragments at most, which are spread over the range.
_MOST_FRAGMENTS = 16


def sample_interactions(
    trained: Trained,
    solution: ReadSolution,
    read: ReadFragment,
    most_events: int,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Interactions:
    """The interactions over about ``most_events`` labelled events of ``solution``, of fragments that are spread over its time.

    A feature of another width than the model's ``dim`` is compared after the network's projection. ``progress(done events, all events)`` is
    called every batch. Nothing is trained. Raises :class:`RunMismatch` if the solution has other inputs than the model,
    :class:`InputError` for a model without embedded inputs, and :class:`ConfigError` for activations that cannot be compared.
    """
    check_inputs(trained.identity, identity_of(solution, trained.config))
    layout, weights = trained.weights.layout, trained.weights
    if not layout.features:
        raise InputError("this model has no embedding inputs: nothing to divide into towers", where=trained.checkpoint, next_step="towers group embedding tables")  # fmt: skip
    summed = InteractionSum(tuple(feature.name for feature in layout.features))
    refs = [ref for part in in_time_order(solution) for ref in fragment_refs(part.key, part.fragments)]
    chosen, all_events = spread(refs, _MOST_FRAGMENTS), min(most_events, solution.rows)
    dense = weights.dense.host_model().in_tensorflow()
    for done, ref in enumerate(chosen):
        wanted = (most_events - summed.events) // (len(chosen) - done)
        if wanted < 1:
            continue
        stream = fragment_stream([ref], read, layout, ahead=1, head=weights.head)
        with closing(stream):  # type: ignore[type-var]
            for batch in make_batches(stream, layout, batch_rows=trained.config.batch_rows):
                vectors = dense.vectors(weights.look_up(batch).deep)[: min(batch.rows, wanted)]
                summed.add(vectors)
                wanted -= len(vectors)
                if progress:
                    progress(summed.events, all_events)
                if not wanted:
                    break
    return summed.mean()


def spread(items: Sequence[T], most: int) -> list[T]:
    """At most ``most`` items at equal distances, the last one among them."""
    count = min(len(items), most)
    return [items[(place + 1) * len(items) // count - 1] for place in range(count)]
