"""The errors for refused TensorFlow functions: the operation, its output and the next step."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from transforms.errors import HeadraceError, InputError
from transforms.twins.allowed_operations import READABLE

#: The operation of a table that is looked up only in loops and branches, so that its types are unknown.
UNWRITTEN_TABLE = "UnwrittenTable"
#: The operation of a captured or constant tensor whose values have no document.
UNWRITABLE = "UnwritableTensor"

#: Patterns of operation names and next steps; the first match applies.
_NEXT_STEPS: tuple[tuple[str, str], ...] = (
    (r"PyFunc", "write it in TensorFlow's own operations, or as a Python operator with hr.op"),
    (r"Random|Rng|Stateless|Stochastic|Shuffle|Multinomial|Glimpse|Fractional|Sampler|Seed",
     "draw random numbers once outside the function and let it capture them as a constant"),
    (r"File|ImmutableConst|VocabRemapping|RemapMatrix|Restore|Save|Reader",
     "read the file outside the function and let it capture the contents as a constant; a table may be filled from a "
     "file with tf.lookup.TextFileInitializer"),
    (r"Var|Assign|^Resource", "let the function capture the variable's value, as in tf.constant(variable.numpy())"),
    (r"^LookupTable|HashTable|^InitializeTable",
     "make the table with tf.lookup.StaticHashTable, and only look it up in the function"),
    (r"Dataset|Iterator|Generator", "read the data outside the function and let it capture the values as a constant"),
    (r"DecodeProto|EncodeProto|DecodeJSONExample", "parse the messages before, and give their fields as columns"),
    (r"DynamicStitch", "use tf.tensor_scatter_nd_update or tf.where: gaps of a stitch hold what the memory held"),
    (r"^(Switch|Merge|Enter|Exit|NextIteration|LoopCond)$",
     "write the function for TensorFlow 2, whose tf.cond and tf.while_loop are If and While"),
    (r"Timestamp", "take the time from a column"),
)  # fmt: skip


class NotBridged(InputError):
    """A TensorFlow function depends on random numbers, files, state or an unsupported type."""


def check_operation(op: str, node: str, where: str) -> None:
    """Refuse an operation that is not on the list. ``node`` is its name in the graph, ``where`` the output it feeds.

    Raises :class:`NotBridged`.
    """
    if op in READABLE:
        return
    if op in ("Placeholder", "PlaceholderV2"):
        raise NotBridged("an output must not need a value that only a run of the pipeline gives", where=where, value=node,
                         next_step="bridge what tf.Transform's analysis wrote: from_transform_output")  # fmt: skip
    if op == UNWRITTEN_TABLE:
        raise NotBridged("a table that was made outside must be looked up outside of loops and branches too", where=where,
                         value=node, next_step="look the whole tensor up, or make the table inside the function")  # fmt: skip
    if op == UNWRITABLE:
        raise NotBridged("a captured tensor must be one whose values can be written down", where=where, value=node,
                         allowed="numbers, text, booleans",
                         next_step="compute it inside the function")  # fmt: skip
    raise NotBridged(
        "an operation of a preprocessing_fn must be one whose result depends on its inputs alone",
        where=where,
        value=f"{op} ({node})",
        allowed="the operations of transforms/twins/allowed_operations.py",
        next_step=next_step(op),
    )


def next_step(op: str) -> str:
    """The next step for a refused operation."""
    found = (step for pattern, step in _NEXT_STEPS if re.search(pattern, op))
    return next(found, f"compute it without {op}")


@contextmanager
def refused_when(step: str) -> Iterator[None]:
    """Convert exceptions of TensorFlow or the function to :class:`NotBridged`; Headrace's own errors pass."""
    try:
        yield
    except HeadraceError:
        raise
    except Exception as error:  # the function is foreign code: it may raise anything
        raise NotBridged(
            f"a preprocessing_fn must be one that TensorFlow can trace, and it fails while it is {step}",
            value=f"{type(error).__name__}: {error}"[:600],
            next_step="call the function with tensors by itself, where the whole traceback shows",
        ) from error
