"""Accepted functions that differ in what they compute have different fingerprints; refusals name their cause."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.transforms.functions.function_pairs import BODY, PAIRS
from transforms.functions import Unfingerprintable

HEAD = """
import headrace as hr
import pyarrow as pa
import pyarrow.compute as pc
"""
TAIL = """

try:
    made = hr.op(result="float64")(f)
finally:
    if "undo" in globals():
        undo()
"""


def declared(folder: Path, text: str) -> Any:
    """The operator that a file makes, or how it is refused."""
    path = folder / "features.py"
    path.write_text(HEAD + text + BODY + TAIL, encoding="utf-8", errors="surrogatepass")
    try:
        return runpy.run_path(str(path), run_name="__headrace_models__")["made"]
    except Unfingerprintable as error:
        return error


def test_there_are_enough_pairs() -> None:
    assert len(PAIRS) >= 200


@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_has_two_fingerprints_or_is_refused(tmp_path: Path, name: str) -> None:
    text, one, other = PAIRS[name]
    assert one != other
    found = [declared(tmp_path, text.replace("@@", variant)) for variant in (one, other)]
    for each in found:
        if isinstance(each, Unfingerprintable):
            assert each.function == "f"
            assert each.variable or each.attribute or each.value, each.what
            assert each.next_step
    accepted = [each.bundle for each in found if not isinstance(each, Unfingerprintable)]
    assert len(accepted) < 2 or accepted[0] != accepted[1]


CLASSES = """
import abc, collections, dataclasses, enum, fractions, functools, re, typing
import numpy as np

R = {"rate": 0.5}
def plus(g):
    @functools.wraps(g)
    def inner(*all):
        return g(*all) + 1
    return inner
class Base(abc.ABC):
    rate: typing.ClassVar[float] = R["rate"]
    half = fractions.Fraction(1, 2)
    order = collections.OrderedDict(a=1)
    pattern = re.compile("a")
    table = np.arange(4)
    kind = np.dtype("i4")
    @abc.abstractmethod
    def g(self, v: int) -> int: ...
class Child(Base):
    "A docstring."
    __slots__ = ("x",)
    class Inner:
        k = 1
    def g(self, v: int) -> int:
        "another"
        return super().rate + v
    @plus
    def h(self, v): return v
    @functools.lru_cache
    def cached(self): return 1
    @functools.cached_property
    def lazy(self): return 2
    @property
    def p(self): return 3
    @p.setter
    def p(self, v): self.x = v
    @staticmethod
    def s(v=R["rate"]): return v
    @classmethod
    def c(cls, *, k=(1, [2])): return k
    later = lambda self, v: v
@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Data:
    a: int = 1
    b: list[int] = dataclasses.field(default_factory=list, hash=False, metadata={"k": 1})
    c: typing.ClassVar[int] = 2
    d: float = dataclasses.field(init=False, default=0.0, repr=False)
    def __post_init__(self): object.__setattr__(self, "d", 1.0)
@dataclasses.dataclass
class More(Child):
    e: str = "e"
    f: dataclasses.InitVar[int] = 3
class Row(typing.NamedTuple):
    a: int
    b: float = 0.5
    def total(self): return self.a + self.b
class Color(enum.Enum):
    RED = enum.auto()
    BLUE = (1, "b")
    ALSO = RED
    def g(self): return self.value
    @classmethod
    def _missing_(cls, value): return cls.RED
class Bits(enum.IntFlag):
    A = 1
    B = 2
class Meta(type):
    def __len__(cls): return 3
class Made(metaclass=Meta):
    def __init_subclass__(cls, k=1): cls.k = k
class Sub(Made, k=5): pass
class Failure(ValueError):
    code = 7
ONES = {Data(1), Data(2)}
KNOWN = [Child, Data(a=3), Color.RED, Bits.A, {"f": plus}]
def value(v):
    return len([Child, More, Row, Color, Bits, Sub, Failure, KNOWN, len(ONES)]) + Row(1).total() + len(Made)
"""


def test_classes_that_are_what_their_source_gives_are_accepted(tmp_path: Path) -> None:
    made = declared(tmp_path, CLASSES)
    assert not isinstance(made, Unfingerprintable), made
    assert made(pa.array([1])).to_pylist() == [13.5]


def test_a_difference_is_refused_by_its_attribute_and_both_values(tmp_path: Path) -> None:
    text = "class Config:\n    rate = 0.5\nConfig.rate = {'rate': 0.7}['rate']\ndef value(v):\n    return v * Config.rate\n"
    with pytest.raises(
        Unfingerprintable, match=r"Config\.rate must be what its source gives, 0\.5, got 0\.7"
    ) as caught:
        raise declared(tmp_path, text)
    assert caught.value.attribute == "Config.rate"
