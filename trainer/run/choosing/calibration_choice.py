"""Choose the calibration step by the slices of a trial. Pure.

A map that is fitted to the predictions of one slice must lower the loss of the next one, as it does in a run: it is fitted to the newest
unseen events and used on later ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trainer.model.calibration import LEAST_RARER, fit
from trainer.run.choosing.selection import Trial, difference
from transforms.arrays import Array

_KINDS = ("platt", "isotonic")


def choose_calibration(labels: Sequence[Array], trial: Trial) -> tuple[str, str]:
    """The kind of the calibration step and the reason, by the ``labels`` and the trial's predictions of each slice."""
    logits = [np.asarray(one[trial.passes - 1], np.float64) for one in trial.logits]
    pairs = list(zip(range(len(logits)), range(1, len(logits)), strict=False))
    if not pairs:
        return "none", "a single slice cannot tell"
    rarer = min(min(int((one == 1).sum()), int((one == 0).sum())) for one in labels)
    if rarer < LEAST_RARER:
        return "none", f"a slice of the trial has {rarer} events of the rarer label; a map needs {LEAST_RARER}"
    plain = [_losses(labels[later], logits[later]) for _, later in pairs]
    best = ("none", "a map of logits that is fitted on one slice does not lower the loss of the next")
    most = 0.0
    for kind in _KINDS:
        mapped = [
            _losses(labels[later], fit(kind, labels[earlier], logits[earlier]).apply(logits[later]))
            for earlier, later in pairs
        ]
        found = difference(plain, mapped)
        if found.is_clear and found.gain > most:
            most, base = found.gain, float(np.concatenate(plain).mean())
            best = (kind, f"fitted on one slice of the trial, it lowers the loss of the next by {found.gain / base:.2%} ± "
                    f"{found.error / base:.2%}")  # fmt: skip
    return best


def _losses(labels: Array, logits: Array) -> Array:
    return np.asarray(np.maximum(logits, 0) - logits * labels + np.log1p(np.exp(-np.abs(logits))))
