"""Refuse NaN and infinity in gradients before any row is changed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from trainer.errors import NonFiniteLoss
from trainer.tables.kernels.gradients import are_finite
from trainer.tables.kernels.threads import Team
from trainer.tables.spec import FeatureSpec
from transforms.arrays import Array


def check_finite(gradients: Array, features: Sequence[FeatureSpec], team: Team) -> None:
    """Raise :class:`NonFiniteLoss` with the feature and the event of the first value that is not finite.

    ``gradients``: by the activations of ``features``, float32, flat, event after event.
    """
    size = len(gradients)
    threads = team.threads_for(size)
    if threads == 1 and are_finite(gradients, 0, size):
        return
    cuts = [size * k // threads // 16 * 16 for k in range(threads)] + [size]
    found = [True] * threads

    def check(k: int) -> None:
        found[k] = are_finite(gradients, cuts[k], cuts[k + 1])

    team.run([partial(check, k) for k in range(threads)])
    if all(found):
        return
    ends = np.cumsum([feature.width for feature in features])
    at = int(np.flatnonzero(~np.isfinite(gradients))[0])
    event, column = divmod(at, int(ends[-1]))
    name = features[int(np.searchsorted(ends, column, side="right"))].name
    raise NonFiniteLoss("training diverged: a gradient is NaN or infinite", value=float(gradients[at]),
                        where=f"feature {name}, event {event} of the batch")  # fmt: skip
