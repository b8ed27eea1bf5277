"""Learning rates that change while a traced program runs.

A function that is called while a program is traced would give its first value for ever. So each is a variable of the program, which is
set before a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from trainer.tables.optimizers import Optimizer, current_learning_rate
from trainer.tables.spec import TableSpec


class LearningRates:
    """The rates of ``tables`` that are functions. To be made in the scope of the strategy."""

    def __init__(self, tables: Sequence[TableSpec]) -> None:
        import tensorflow as tf

        self._variables: dict[Callable[[], float], tuple[Optimizer, Any, Callable[[], float]]] = {}
        for table in tables:
            rate = table.optimizer.learning_rate
            if callable(rate) and rate not in self._variables:
                variable = tf.Variable(
                    current_learning_rate(table.optimizer), dtype=tf.float32, trainable=False, name="learning_rate",
                    aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
                )  # fmt: skip
                self._variables[rate] = (table.optimizer, variable, variable.read_value)

    def traced(self, optimizer: Optimizer) -> Optimizer:
        """The optimizer as a program takes it: tables of one rate have one function, so that they can be stacked."""
        rate = optimizer.learning_rate
        return replace(optimizer, learning_rate=self._variables[rate][2]) if callable(rate) else optimizer

    def update(self) -> None:
        """Set the variables to the rates of the next step. Raises :class:`ConfigError` for one that is not a finite number >= 0."""
        for optimizer, variable, _ in self._variables.values():
            variable.assign(current_learning_rate(optimizer))
