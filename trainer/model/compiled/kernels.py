"""Run a program over the events of a batch, forward and backward.

All arrays are flat. ``work`` has the buffers one after the other: row r of buffer b is at ``starts[b] + r * widths[b]``; ``slopes`` has their gradients at
the same places. A call computes the rows ``first`` to ``stop``, so that threads share a batch; each has a vector of its own for the gradients of weights.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from trainer.model.compiled.pair_kernels import add_rows, copy_rows, pairs_backward, pairs_forward
from trainer.model.compiled.products import rows_times, settings, times_turned, turned_times
from trainer.model.compiled.program import (
    BIAS,
    CODE,
    IS_FIRST,
    KIND,
    OTHER,
    SOURCE,
    SOURCE_COLUMN,
    SOURCE_WIDTH,
    TARGET,
    TARGET_COLUMN,
    TARGET_WIDTH,
    WEIGHT,
    Activation,
    Code,
)

_TAKE, _DENSE, _COPY, _PAIRS, _CROSS = (int(one) for one in (Code.TAKE, Code.DENSE, Code.COPY, Code.PAIRS, Code.CROSS))
_TIMES_VECTOR, _VECTOR, _ACTIVATE, _DROP = (int(one) for one in (Code.TIMES_VECTOR, Code.VECTOR, Code.ACTIVATE, Code.DROP))  # fmt: skip
_RELU, _LEAKY_RELU, _SILU = (int(one) for one in (Activation.RELU, Activation.LEAKY_RELU, Activation.SILU))
#: Keras's slope of a leaky ReLU below zero.
_LEAK = np.float32(0.2)
_ZERO, _ONE, _HALF = np.float32(0), np.float32(1), np.float32(0.5)
_ROOT_HALF, _ROOT_TWO_PI = np.float32(math.sqrt(0.5)), np.float32(math.sqrt(2 * math.pi))

_compiled = njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})


@_compiled  # type: ignore[untyped-decorator]
def scale_numbers(
    dense: Any, is_log: Any, mean: Any, deviation: Any, most: float, work: Any, first: int, stop: int
) -> None:
    """Write the numbers of events, scaled, into the first buffer; without ``is_log`` as they are."""
    width = is_log.size
    for row in range(first, stop):
        for column in range(width):
            value = dense[row, column]
            if deviation.size:
                if is_log[column]:
                    value = math.copysign(math.log1p(abs(value)), value)
                value = (value - mean[column]) / deviation[column]
                value = min(max(value, -most), most) if value == value else value
            work[row * width + column] = value


@_compiled  # type: ignore[untyped-decorator]
def run_forward(operations: Any, widths: Any, starts: Any, work: Any, weights: Any, activations: Any, masks: Any, mask_width: int, is_training: bool, first: int, stop: int) -> None:  # fmt: skip
    """Compute all buffers."""
    rows = stop - first
    own = settings()
    for op in range(operations.shape[0]):
        code, n = operations[op, CODE], operations[op, TARGET_WIDTH]
        step = widths[operations[op, TARGET]]
        at = starts[operations[op, TARGET]] + first * step + operations[op, TARGET_COLUMN]
        source, column = operations[op, SOURCE], operations[op, SOURCE_COLUMN]
        from_step, from_at = 0, 0
        if source >= 0:
            from_step = widths[source]
            from_at = starts[source] + first * from_step + column
        weight, kind = operations[op, WEIGHT], operations[op, KIND]
        if code == _DENSE:
            _dense_forward(own, rows, operations[op, SOURCE_WIDTH], n, work, from_at, from_step, weights, weight, operations[op, BIAS], kind, at, step)  # fmt: skip
        elif code == _TAKE:
            width = activations.shape[1]
            copy_rows(rows, n, activations.reshape(-1), first * width + column, width, work, at, step)
        elif code == _COPY:
            copy_rows(rows, n, work, from_at, from_step, work, at, step)
        elif code == _PAIRS:
            pairs_forward(rows, from_step // kind, kind, work, from_at, at, step)
        elif code == _CROSS:
            other = starts[operations[op, OTHER]] + first * step
            _cross_forward(rows * step, work, starts[kind] + first * step, from_at, other, at)
        elif code in (_TIMES_VECTOR, _VECTOR):
            for row in range(rows):
                number = work[(first + row) * widths[0] + column] if code == _TIMES_VECTOR else _ONE
                to, place = np.uintp(at + row * step), np.uintp(weight)
                for k in range(np.uintp(n)):
                    work[to + k] = number * weights[place + k]
        elif code == _ACTIVATE:
            for row in range(rows):
                to, place = np.uintp(at + row * step), np.uintp(from_at + row * from_step)
                for k in range(np.uintp(n)):
                    work[to + k] = _activated(kind, work[place + k])
        elif is_training:
            for row in range(rows):
                to, place = np.uintp(at + row * step), np.uintp(from_at + row * from_step)
                mask = np.uintp((first + row) * mask_width + kind)
                for k in range(np.uintp(n)):
                    work[to + k] = work[place + k] * masks[mask + k]
        else:
            copy_rows(rows, n, work, from_at, from_step, work, at, step)


@_compiled  # type: ignore[untyped-decorator]
def run_backward(operations: Any, widths: Any, starts: Any, has_slopes: Any, is_cleared: Any, work: Any, slopes: Any, weights: Any, found: Any, by_activations: Any, masks: Any, mask_width: int, first: int, stop: int) -> None:  # fmt: skip
    """Compute the gradients of the activations and, in ``found``, of the weights, from those of the logits in ``slopes``."""
    rows = stop - first
    own = settings()
    for buffer in range(widths.size):
        if is_cleared[buffer] and has_slopes[buffer]:
            start = starts[buffer] + first * widths[buffer]
            slopes[start : start + rows * widths[buffer]] = _ZERO
    for op in range(operations.shape[0] - 1, -1, -1):
        code, n = operations[op, CODE], operations[op, TARGET_WIDTH]
        step = widths[operations[op, TARGET]]
        at = starts[operations[op, TARGET]] + first * step + operations[op, TARGET_COLUMN]
        source, column = operations[op, SOURCE], operations[op, SOURCE_COLUMN]
        from_step, from_at, adds, is_wanted = 0, 0, False, False
        if source >= 0:
            from_step = widths[source]
            from_at = starts[source] + first * from_step + column
            adds = not operations[op, IS_FIRST]
            is_wanted = has_slopes[source]
        weight, kind = operations[op, WEIGHT], operations[op, KIND]
        if code == _DENSE:
            _dense_backward(own, rows, operations[op, SOURCE_WIDTH], n, work, slopes, from_at, from_step, weights, weight, operations[op, BIAS], kind, at, step, found, adds, is_wanted)  # fmt: skip
        elif code == _TAKE:
            width = by_activations.shape[1]
            copy_rows(rows, n, slopes, at, step, by_activations.reshape(-1), first * width + column, width)
        elif code in (_TIMES_VECTOR, _VECTOR):
            for row in range(rows):
                number = work[(first + row) * widths[0] + column] if code == _TIMES_VECTOR else _ONE
                to, place = np.uintp(at + row * step), np.uintp(weight)
                for k in range(np.uintp(n)):
                    found[place + k] += number * slopes[to + k]
        elif code == _CROSS:
            other = starts[operations[op, OTHER]] + first * step
            _cross_backward(rows * step, work, slopes, starts[kind] + first * step, from_at, other, at, adds)
        elif is_wanted:
            if code == _PAIRS:
                pairs_backward(rows, from_step // kind, kind, work, slopes, from_at, at, step, adds)
            elif code == _COPY:
                if adds:
                    add_rows(rows, n, slopes, at, step, slopes, from_at, from_step)
                else:
                    copy_rows(rows, n, slopes, at, step, slopes, from_at, from_step)
            else:
                for row in range(rows):
                    to, place = np.uintp(at + row * step), np.uintp(from_at + row * from_step)
                    mask = np.uintp((first + row) * mask_width + kind)
                    for k in range(np.uintp(n)):
                        slope = slopes[to + k] * (
                            masks[mask + k] if code == _DROP else _slope_of(kind, work[place + k])
                        )
                        slopes[place + k] = slope + slopes[place + k] if adds else slope


@_compiled  # type: ignore[untyped-decorator]
def _cross_forward(size: int, work: Any, x: int, product: int, crossed: int, at: int) -> None:
    one, two, three, to = np.uintp(x), np.uintp(product), np.uintp(crossed), np.uintp(at)
    for k in range(np.uintp(size)):
        work[to + k] = work[one + k] * work[two + k] + work[three + k]


@_compiled  # type: ignore[untyped-decorator]
def _cross_backward(size: int, work: Any, slopes: Any, x: int, product: int, crossed: int, at: int, adds: bool) -> None:
    one, two, three, to = np.uintp(x), np.uintp(product), np.uintp(crossed), np.uintp(at)
    if adds:
        for k in range(np.uintp(size)):
            slopes[two + k] += slopes[to + k] * work[one + k]
    else:
        for k in range(np.uintp(size)):
            slopes[two + k] = slopes[to + k] * work[one + k]
    for k in range(np.uintp(size)):
        slopes[one + k] += slopes[to + k] * work[two + k]
    for k in range(np.uintp(size)):
        slopes[three + k] += slopes[to + k]


@_compiled  # type: ignore[untyped-decorator]
def _activated(kind: int, value: Any) -> Any:
    """SiLU, or GELU by the error function."""
    if kind == _SILU:
        return value / (_ONE + math.exp(-value))
    return _HALF * value * (_ONE + math.erf(value * _ROOT_HALF))


@_compiled  # type: ignore[untyped-decorator]
def _slope_of(kind: int, value: Any) -> Any:
    """The derivative of :func:`_activated`."""
    if kind == _SILU:
        share = _ONE / (_ONE + math.exp(-value))
        return share * (_ONE + value * (_ONE - share))
    density = math.exp(-_HALF * value * value) / _ROOT_TWO_PI
    return _HALF * (_ONE + math.erf(value * _ROOT_HALF)) + value * density


@_compiled  # type: ignore[untyped-decorator]
def _dense_forward(own: Any, rows: int, inner: int, n: int, work: Any, from_at: int, from_step: int, weights: Any, weight: int, bias: int, kind: int, at: int, step: int) -> None:  # fmt: skip
    if n == 1:
        for row in range(rows):
            total = _ZERO
            start, place = np.uintp(from_at + row * from_step), np.uintp(weight)
            for k in range(np.uintp(inner)):
                total += work[start + k] * weights[place + k]
            work[at + row * step] = total
    else:
        rows_times(own, rows, inner, n, work, from_at, from_step, weights, weight, work, at, step)
    if bias < 0 and kind == 0:
        return
    leak = _ONE if kind == 0 else (_ZERO if kind == _RELU else _LEAK)
    place = np.uintp(max(bias, 0))
    for row in range(rows):
        to = np.uintp(at + row * step)
        if bias >= 0:
            for k in range(np.uintp(n)):
                value = work[to + k] + weights[place + k]
                work[to + k] = max(value, _ZERO) + leak * min(value, _ZERO)
        else:
            for k in range(np.uintp(n)):
                value = work[to + k]
                work[to + k] = max(value, _ZERO) + leak * min(value, _ZERO)


@_compiled  # type: ignore[untyped-decorator]
def _dense_backward(own: Any, rows: int, inner: int, n: int, work: Any, slopes: Any, from_at: int, from_step: int, weights: Any, weight: int, bias: int, kind: int, at: int, step: int, found: Any, adds: bool, is_wanted: bool) -> None:  # fmt: skip
    leak = _ZERO if kind == _RELU else _LEAK
    place = np.uintp(max(bias, 0))
    for row in range(rows):
        to = np.uintp(at + row * step)
        if kind != 0:
            for k in range(np.uintp(n)):
                slopes[to + k] *= _ONE if work[to + k] > _ZERO else leak
        if bias >= 0:
            for k in range(np.uintp(n)):
                found[place + k] += slopes[to + k]
    if n == 1:
        kernel = np.uintp(weight)
        for row in range(rows):
            slope = slopes[at + row * step]
            start = np.uintp(from_at + row * from_step)
            for k in range(np.uintp(inner)):
                found[kernel + k] += slope * work[start + k]
            if is_wanted and adds:
                for k in range(np.uintp(inner)):
                    slopes[start + k] += slope * weights[kernel + k]
            elif is_wanted:
                for k in range(np.uintp(inner)):
                    slopes[start + k] = slope * weights[kernel + k]
        return
    turned_times(own, rows, inner, n, work, from_at, from_step, slopes, at, step, found, weight)
    if is_wanted:
        times_turned(own, rows, n, inner, slopes, at, step, weights, weight, slopes, from_at, from_step, adds)


@_compiled  # type: ignore[untyped-decorator]
def add_linear(
    linear: Any, outputs: int, weights: Any, bias: int, numbers: int, work: Any, logits_at: int, first: int, stop: int
) -> None:
    """Add the linear part to the logits: the weights of ids in ``linear``, and at ``bias`` those of the outputs and then of numbers."""
    kernel = bias + outputs
    features = linear.shape[1] // outputs
    for row in range(first, stop):
        for o in range(outputs):
            total = _ZERO
            for f in range(features):
                total += linear[row, f * outputs + o]
            own = _ZERO
            for k in range(numbers):
                own += work[row * numbers + k] * weights[kernel + k * outputs + o]
            work[logits_at + row * outputs + o] += total + (own + weights[bias + o])


@_compiled  # type: ignore[untyped-decorator]
def linear_slopes(
    slopes: Any,
    outputs: int,
    logits_at: int,
    bias: int,
    numbers: int,
    work: Any,
    found: Any,
    by_linear: Any,
    first: int,
    stop: int,
) -> None:
    """The gradients of :func:`add_linear` by the weights of ids, and by those of outputs and numbers."""
    kernel = bias + outputs
    features = by_linear.shape[1] // outputs
    for row in range(first, stop):
        for o in range(outputs):
            slope = slopes[logits_at + row * outputs + o]
            for f in range(features):
                by_linear[row, f * outputs + o] = slope
            found[bias + o] += slope
            for k in range(numbers):
                found[kernel + k * outputs + o] += slope * work[row * numbers + k]


@_compiled  # type: ignore[untyped-decorator]
def loss_slopes(
    tasks: Any,
    shares: Any,
    labels: Any,
    events: Any,
    total: float,
    outputs: int,
    work: Any,
    slopes: Any,
    logits_at: int,
    first: int,
    stop: int,
) -> None:
    """The gradients of the mean loss by the logits.

    ``tasks``: by label, its kind (0: binary, 1: classes, 2: a number), its first output and its outputs; ``shares``: the weights of their losses;
    ``labels``: [events, tasks], NaN for none; ``events``: the weights of events, whose sum is ``total``.
    """
    for row in range(first, stop):
        at = logits_at + row * outputs
        for o in range(outputs):
            slopes[at + o] = _ZERO
        for t in range(tasks.shape[0]):
            label = labels[row, t]
            if label != label:
                continue
            share = shares[t] * events[row] / total
            place, width = at + tasks[t, 1], tasks[t, 2]
            if tasks[t, 0] == 0:
                slopes[place] = share * (_ONE / (_ONE + math.exp(-work[place])) - label)
            elif tasks[t, 0] == 2:
                slopes[place] = share * (work[place] - label) * np.float32(2)
            else:
                most = work[place]
                for k in range(width):
                    most = max(most, work[place + k])
                norm = _ZERO
                for k in range(width):
                    norm += math.exp(work[place + k] - most)
                for k in range(width):
                    slopes[place + k] = share * math.exp(work[place + k] - most) / norm
                if 0 <= label < width:
                    slopes[place + int(label)] -= share
