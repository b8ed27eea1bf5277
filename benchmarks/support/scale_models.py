"""Components and models for benchmarks of large catalogs: any number of distinct ones, of a few families."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from functools import cache

from transforms.expressions.expression import Expr, concat, cross, float32, text
from transforms.expressions.model import Model

TEXTS, CATEGORIES, NUMBERS = 12, 4, 23
LABEL = "clicked"
#: The columns of every table: name and Arrow type.
COLUMNS = (
    *((f"t{i}", "string") for i in range(TEXTS)),
    *((f"c{i}", "string") for i in range(CATEGORIES)),
    *((f"x{i}", "float") for i in range(NUMBERS)),
    (LABEL, "bool"),
)


@cache
def expression(number: int) -> Expr:
    """The component of this number, 4 to 12 operations; all are distinct and share prefixes, as in real models."""
    a, b = (text(f"t{i}").lower().unigrams() for i in (number % TEXTS, number * 7 // 4 % TEXTS))
    match number % 5:
        case 0:
            return concat(a & b, b.ngrams(2)).hash_buckets(1000 + number)
        case 1:
            return cross(a.head(3), text(f"c{number % CATEGORIES}"), buckets=1000 + number)
        case 2:
            return (float32(f"x{number // 5 % NUMBERS}").fill_null(0.0).log1p() + float(number)) * 2.0
        case 3:
            return (a | b).unique().hash_buckets(1000 + number)
        case _:
            return a.count().cast("float32") * float(number) + float32(f"x{number // 5 % NUMBERS}").fill_null(1.0)


def model(name: str, numbers: Iterable[int], table: str, client: str = "bench") -> Model:
    """A model whose inputs are the components of these numbers."""
    made = Model(name, client=client, label=LABEL, table=table)
    for number in numbers:
        made.input(f"input_{number}", expression(number))
    return made


def choose(known: Sequence[range], inputs: int, files: int, seed: int) -> list[int]:
    """Choose ``inputs`` numbers from ``files`` of the groups ``known``, in equal parts, like a variation of some models."""
    rng = random.Random(seed)
    groups = rng.sample(known, min(files, len(known)))
    chosen = [number for group in groups for number in rng.sample(group, min(len(group), -(-inputs // len(groups))))]
    return chosen[:inputs]
