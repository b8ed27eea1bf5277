"""What the metric history takes of weights and their steps."""

from __future__ import annotations

from trainer.model.idle_units import IdleUnits
from trainer.run.history.recorder import Gauges
from trainer.run.weights.run_state import ModelWeights
from trainer.run.weights.step_pipeline import Steps

_NO_UNITS = IdleUnits(0, 0, 0)


def gauges_of(weights: ModelWeights, steps: Steps, fullness: float | None = None) -> Gauges:
    """The gauges of this process now; ``fullness``: of its buffer of units."""
    missed, norms = steps.staleness, weights.gradient_norms
    units = weights.idle_units or _NO_UNITS
    return Gauges(
        row_wait_secs=steps.wait_secs,
        missed_updates=sum(missed_updates * lookups for missed_updates, lookups in enumerate(missed.lookups)),
        lookups=missed.total,
        gradient_norms=norms.total,
        gradient_steps=norms.steps,
        hidden_units=units.units,
        idle_units=units.off,
        fullness=fullness,
    )
