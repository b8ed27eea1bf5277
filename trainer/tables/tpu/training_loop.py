"""Steps in a loop that runs on the TPUs' hosts: one call for many of them. TensorFlow can pipeline the lookups of training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainer.tables.tpu.engine import TpuEngine
from trainer.tables.tpu.slices import DenseStep, Predict


def training_loop(engine: TpuEngine, dense_step: DenseStep) -> Any:
    """A ``tf.function`` of an iterator over the elements of a call (:mod:`~trainer.tables.tpu.call_inputs`) and a number of steps, which it trains.

    A pipelined engine's lookups overlap only inside this loop: TensorFlow rewrites it as a whole. Learning rates that are functions
    stay as they were set before the loop began.
    """

    def replica_step(inputs: Any, others: Any) -> None:
        activations, kept = engine.lookup(inputs)
        engine.apply_gradients(dense_step(activations, *others), kept)

    return _loop_of(engine, replica_step)


def scoring_loop(engine: TpuEngine, predict: Predict) -> Any:
    """As :func:`training_loop`, of lookups and predictions alone."""

    def replica_step(inputs: Any, others: Any) -> None:
        activations, _ = engine.lookup(inputs, training=False)
        predict(activations, *others)

    return _loop_of(engine, replica_step)


def _loop_of(engine: TpuEngine, replica_step: Callable[[Any, Any], None]) -> Any:
    """A ``tf.function`` of an iterator and a number of steps."""
    import tensorflow as tf

    def run(iterator: Any, steps: Any) -> None:
        def body(done: Any) -> Any:
            engine.strategy.run(replica_step, args=next(iterator))
            return done + 1

        tf.while_loop(lambda done: done < steps, body, [tf.constant(0)])

    return tf.function(run, autograph=False)
