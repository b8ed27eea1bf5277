"""User-defined functions: what is bundled, what is refused, and that the bundle is what runs."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headrace as hr
from transforms.errors import DataError, InputError, TypeMismatch
from transforms.execution.plan import compile_plan
from transforms.functions import OtherPackageVersion, Unfingerprintable
from transforms.functions.rebuild import parsed, rebuilt
from transforms.functions.run import one_event
from transforms.graphs.graph import component_document, component_from_document

TOP = Path(__file__).parents[3]
HEAD = """
import headrace as hr
import pyarrow as pa
import pyarrow.compute as pc
"""
PRICES = """
RATES = {"EUR": 1.0, "USD": 1.1}


def rate(currency):
    return RATES[currency]


@hr.op(result="float64")
def unit_price(price, units, *, currency="EUR"):
    return pc.multiply(pc.divide(price, pc.cast(units, pa.float64())), rate(currency))


made = unit_price(hr.float64("price"), hr.int64("units"), currency="USD")
"""


def made(tmp_path, text, name="features.py", head=HEAD):
    """The expression that a file binds to ``made``, with the file gone afterwards."""
    path = tmp_path / name
    path.write_text(head + text, encoding="utf-8")
    try:
        return runpy.run_path(str(path), run_name="__headrace_models__")["made"]
    finally:
        path.unlink()


def identity(tmp_path, text, **more):
    return made(tmp_path, text, **more).node.identity


def run(expression, **columns):
    root = component_from_document(json.loads(json.dumps(component_document(expression.node))))
    result = compile_plan({"it": root}).run(pa.table(columns))
    assert not result.failures, result.failures["it"].error
    return result.columns["it"]


def failure(expression, **columns):
    return compile_plan({"it": expression.node}).run(pa.table(columns)).failures["it"].error


def test_function_runs_from_what_was_written_down(tmp_path):
    expression = made(tmp_path, PRICES)
    got = run(expression, price=pa.array([1.0, 5.0, None]), units=pa.array([1, 2, 3]))
    assert got.to_pylist() == [1.1, 2.75, None]
    assert str(expression).startswith("python_function(price, units, unit_price v-")
    assert str(expression).endswith("currency='USD'): Dense[float64]")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("    return RATES[currency]", '    """What it costs."""\n\n    return RATES[currency]  # of today'),
        ("def rate(currency):", "def unrelated():\n    return 1\n\n\ndef rate(currency: str) -> float:"),
        ("    return pc.multiply(", "    return pc.multiply(\n        "),
        ("\n\n\n", "\n\n\n\n\n# moved down\n\n"),
        ('currency="USD")', 'currency=("USD"))'),
        ('@hr.op(result="float64")', '@hr.op(result=hr.Dense("float64"))'),
        ("price, units, *", "price: pa.Array, units: 'pa.Array', *"),
    ],
)
def test_what_does_not_change_what_runs_does_not_change_the_fingerprint(tmp_path, before, after):
    assert before in PRICES
    changed = identity(tmp_path, PRICES.replace(before, after), name="elsewhere.py")
    assert changed == identity(tmp_path, PRICES)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("return RATES[currency]", "return RATES[currency] * 2"),
        ('"USD": 1.1', '"USD": 1.2'),
        ('"USD": 1.1', '"USD": 1.1, "GBP": 0.9'),
        ("pc.divide(", "pc.divide_checked("),
        ('hr.int64("units"), currency="USD"', 'hr.int64("units")'),
        ('result="float64"', 'result="float32"'),
        ('"EUR": 1.0', '"EUR": 1'),
    ],
)
def test_what_changes_what_runs_changes_the_fingerprint(tmp_path, before, after):
    assert before in PRICES
    assert identity(tmp_path, PRICES.replace(before, after)) != identity(tmp_path, PRICES)


def test_a_default_given_is_a_default_left_out(tmp_path):
    left_out = PRICES.replace(', currency="USD")', ")")
    assert identity(tmp_path, left_out) == identity(tmp_path, PRICES.replace('currency="USD")', 'currency="EUR")'))


def test_a_default_given_as_another_type_is_kept(tmp_path):
    text = """
@hr.op(result="bool")
def is_true(values, *, flag=1, flags=(1,)):
    return pa.array([flag is True or flags[0] is True] * len(values))


made = is_true(hr.int64("x")%s)
"""
    for given, expected in (("", False), (", flag=1", False), (", flag=True", True), (", flags=(True,)", True)):
        assert run(made(tmp_path, text % given), x=pa.array([3])).to_pylist() == [expected], given
    assert (
        identity(tmp_path, text % ", flag=True")
        != identity(tmp_path, text % ", flag=1")
        == identity(tmp_path, text % "")
    )


CACHED = """
import functools


def plus(number):
    def wrap(function):
        @functools.wraps(function)
        def wrapped(x):
            return function(x) + number

        return wrapped

    return wrap


@functools.lru_cache
@plus(1)
def doubled(x):
    return 2 * x


made = hr.op(result="int64")(lambda x: pc.add(x, doubled(3)))(hr.int64("x"))
"""


def test_a_cache_is_dropped_and_what_it_caches_is_kept(tmp_path):
    assert run(made(tmp_path, CACHED), x=pa.array([10])).to_pylist() == [17]
    assert identity(tmp_path, CACHED) != identity(tmp_path, CACHED.replace("@plus(1)", "@plus(2)"))


SETS = """
import enum


class Color(enum.Enum):
    RED = 1


class Size(enum.Enum):
    LARGE = 1


class Shape(enum.Enum):
    ROUND = 1


KNOWN = frozenset({Color.RED, Size.LARGE, Shape.ROUND})


@hr.op(result="int64")
def f(x):
    return pc.add(x, len(KNOWN))


print(f(hr.int64("x")).node.identity)
"""


@pytest.mark.slow
def test_what_a_set_holds_is_written_in_one_order_in_every_process(tmp_path):
    place = tmp_path / "features.py"
    place.write_text(HEAD + SETS, encoding="utf-8")
    found = set()
    for seed in ("0", "1", "2", "3"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(TOP)}
        answer = subprocess.run(
            [sys.executable, str(place)], env=environment, capture_output=True, text=True, check=True
        )
        found.add(answer.stdout)
    assert len(found) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "says"),
    [("-O", "AssertionError"), ("-Xno_debug_ranges", "its source cannot be found")],
)
def test_how_python_was_started_changes_nothing_unseen(tmp_path, option, says):
    place = tmp_path / "features.py"
    place.write_text(HEAD + """
def checked(x):
    assert len(x) == 0
    return x


pair = (lambda x: x), (lambda x: checked(x))
print(hr.op(result="int64")(pair[1])(pa.array([1])))
""", encoding="utf-8")  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(TOP)}
    answer = subprocess.run([sys.executable, option, str(place)], env=environment, capture_output=True, text=True)
    assert says in answer.stderr


@pytest.mark.slow
def test_fingerprint_is_one_in_every_process(tmp_path):
    text = (
        HEAD
        + PRICES
        + "\nKNOWN = {'a', 'b', 'c', 'd'}\n"
        + (
            "@hr.op(result='bool')\ndef known(values):\n    return pa.array([v in KNOWN for v in values.to_pylist()])\n"
            "print(made.node.identity, known(hr.text('q')).node.identity)\n"
        )
    )
    found = set()
    for seed, folder in (("0", "a"), ("1", "b"), ("random", "c")):
        place = tmp_path / folder / "deep" / f"{folder}.py"
        place.parent.mkdir(parents=True)
        place.write_text(text, encoding="utf-8")
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(TOP)}
        answer = subprocess.run([sys.executable, str(place)], env=environment, cwd=place.parent, capture_output=True,
                                text=True, check=True)  # fmt: skip
        found.add(answer.stdout.split()[0])
        found.add(answer.stdout.split()[1])
    assert found == {identity(tmp_path, PRICES), *found}
    assert len(found) == 2


def test_modules_of_the_project_are_written_down_too(tmp_path, monkeypatch):
    (tmp_path / "money").mkdir()
    (tmp_path / "money" / "__init__.py").write_text("from money.rates import RATE\n")
    (tmp_path / "money" / "rates.py").write_text(
        "RATE = 2.0\nUNUSED = open(__file__)\n\ndef doubled(x):\n    return x * RATE\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    text = "import money, money.rates\nfrom money.rates import doubled\n\n\n@hr.op(result='float64')\ndef f(x):\n    return pa.array([{} for v in x.to_pylist()])\n\n\nmade = f(hr.float64('x'))\n"
    by_name = made(tmp_path, text.format("doubled(v)"))
    by_module = made(tmp_path, text.format("money.rates.doubled(v) + money.RATE"))
    whole = "".join(text.format("str(money)"))
    with pytest.raises(Unfingerprintable, match="variable 'money' is a module of the project used as a value"):
        made(tmp_path, whole)
    for name in [name for name in sys.modules if name.startswith("money")]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "money" / "rates.py").write_text("raise AssertionError('nobody imports this')")
    rebuilt.cache_clear()
    assert run(by_name, x=pa.array([1.5])).to_pylist() == [3.0]
    assert run(by_module, x=pa.array([1.5])).to_pylist() == [5.0]


REBUILT = """
import dataclasses
import datetime
import enum
import functools
import re
import numpy as np
from decimal import Decimal


class Side(enum.Enum):
    LEFT = "l"
    RIGHT = "r"


@dataclasses.dataclass(frozen=True)
class Rule:
    pattern: re.Pattern
    weight: float = 1.0

    def score(self, text):
        return self.weight * len(self.pattern.findall(text))


RULES = (Rule(re.compile("[aeiou]", re.I), 2.0), Rule(re.compile(r"\\d")))
SIDES = [Side.LEFT, None, True, b"\\x00", {1, 2}, frozenset({"x"}), datetime.date(2026, 1, 2), Decimal("1.10"),
         datetime.timedelta(hours=1), float("inf"), -0.0, float("nan"), np.float32(0.5), pa.scalar(3), pa.int8()]
TABLE = np.arange(4.0)
WANTED = pa.array(["a", "e"])


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def even(n):
    return n == 0 or odd(n - 1)


def odd(n):
    return n != 0 and even(n - 1)


@functools.lru_cache(maxsize=None)
def scored(text):
    return sum(rule.score(text) for rule in RULES)


def powered(exponent):
    def power(base):
        return base if exponent == 0 else base * powered_down(base)
    powered_down = lambda base: base**exponent
    return power


cubed = powered(3)
halved = functools.partial(np.multiply, 0.5)


@hr.op(result=hr.Ragged("float64"))
def everything(values, *, at=1):
    words = values.fill_null("").to_pylist()
    assert SIDES[0] is Side.LEFT and SIDES[3:6] == [b"\\x00", {1, 2}, frozenset({"x"})], SIDES
    assert SIDES[6:10] == [datetime.date(2026, 1, 2), Decimal("1.10"), datetime.timedelta(hours=1), float("inf")]
    assert str(SIDES[10]) == "-0.0" and SIDES[11] != SIDES[11] and SIDES[12].dtype == "float32"
    assert SIDES[13] == pa.scalar(3) and SIDES[14] == pa.int8()
    assert pc.sum(pc.is_in(values, value_set=WANTED)).as_py() is not None
    return pa.array([[scored(w), float(fib(6)), float(even(4)), cubed(2.0), float(halved(w.count("a"))), TABLE[at]]
                     for w in words])


made = everything(hr.text("q"), at=2)
"""


def test_every_bundled_value_round_trips(tmp_path):
    expression = made(tmp_path, REBUILT)
    got = run(expression, q=["a1e", None, "aa"])
    assert got.to_pylist() == [
        [5.0, 8.0, 1.0, 16.0, 0.5, 2.0],
        [0.0, 8.0, 1.0, 16.0, 0.0, 2.0],
        [4.0, 8.0, 1.0, 16.0, 1.0, 2.0],
    ]
    packages = next(iter(json.loads(dict(expression.node.params)["bundle"])["packages"].items()))
    assert packages[0] == "numpy"


REFUSED = {
    "an open file": ("log = open(__file__)", "log.name", "log", "TextIOWrapper"),
    "a large array": ("import numpy as np\nbig = np.zeros(100_000)", "big[0]", "big", "ndarray"),
    "an object": ("thing = object()", "thing", "thing", "type object"),
    "an item of a list": ("things = [1, {'a': object()}]", "things", "things[1]['a']", "type object"),
    "what is undefined": ("", "nowhere(x)", "nowhere", "not defined yet"),
    "time": ("import time", "time.time()", "time.time", "differs between runs"),
    "the current time": ("import datetime as dt", "dt.datetime.now()", "dt.datetime.now", "differs between runs"),
    "now by its name": ("from datetime import datetime\nnow = datetime.now", "now()", "now", "differs between runs"),
    "chance": ("import random", "random.random()", "random.random", "differs between runs"),
    "numpy's chance": ("import numpy as np", "np.random.default_rng(1)", "np.random", "differs between runs"),
    "chance by the module": ("import random", "getattr(random, 'random')()", "random", "differs between runs"),
    "a masked array": ("import numpy as np\nmasked = np.ma.array([1, 2], mask=[0, 1])", "masked.sum()", "masked", "type MaskedArray"),
    "a time span of pandas": ("import pandas as pd\nspan = pd.Timedelta(1, 'ns')", "span.value", "span", "type Timedelta"),
    "a set of what uses it": ("def g():\n    return both\ndef h():\n    return both\nboth = {g, h}", "both", "both", "items use it"),
    "the environment": ("import os", "os.environ['HOME']", "os.environ", "differs between runs"),
    "a file": ("", "open('x').read()", "open", "reads files"),
    "hash": ("", "hash('x')", "hash", "differs between processes"),
    "an import inside": ("", "__import__('time')", "__import__", "cannot be seen"),
    "eval": ("", "eval('1')", "eval", "cannot be seen"),
    "a list that grows": ("seen = []", "seen.append(1)", "seen", "changed by the function"),
    "a bound method": ("import io\nstream = io.StringIO()\nwrite = stream.write", "write('x')", "write", "cannot be written"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_name_the_variable(tmp_path, case):
    before, body, variable, why = REFUSED[case]
    text = f"{before}\n\n\n@hr.op(result='int64')\ndef f(x):\n    {body}\n    return x\n\n\nmade = f(hr.int64('x'))\n"
    with pytest.raises(Unfingerprintable, match="function f cannot be fingerprinted") as caught:
        made(tmp_path, text)
    assert caught.value.variable == variable
    assert why in caught.value.what
    assert caught.value.next_step


@pytest.mark.parametrize(
    ("text", "variable", "why"),
    [
        ("count = 0\n\n\ndef f(x):\n    global count\n    count += 1\n    return x\n", "count", "written by the function"),
        (
            "def outer():\n    count = 0\n    def f(x):\n        nonlocal count\n        count += 1\n        return x\n"
            "    return f\n\n\nf = outer()\n", "count", "written by the function",
        ),
        ("table = {}\n\n\ndef f(x):\n    table['a'] = x\n    return x\n", "table", "changed by the function"),
        ("async def f(x):\n    return x\n", "", "async"),
        ("def f(x):\n    yield x\n", "", "generator"),
        ("def f(x):\n    import time\n    return pa.array([time.time()])\n", "time", "differs"),
        ("def f(x):\n    from datetime import datetime\n    return datetime.now()\n", "datetime", "differs"),
        ("def f(x):\n    from . import sibling\n    return x\n", "sibling", "imports itself"),
        ("exec('def f(x): return x')\n", "", "source cannot be found"),
        ("f, g = lambda x: x, lambda x: pc.negate(x)\nclass K: pass\nK.f = f\nf = K().f\n", "", "cannot be written down"),
        ("f = 3\n", "", "no function"),
    ],
)  # fmt: skip
def test_refusals_of_what_a_function_is_or_does(tmp_path, text, variable, why):
    with pytest.raises(Unfingerprintable) as caught:
        made(tmp_path, text + "\nmade = hr.op(result='int64')(f)(hr.int64('x'))\n")
    assert caught.value.variable == variable
    assert why in caught.value.what


def test_the_right_one_of_two_lambdas_on_a_line(tmp_path):
    text = "pair = (lambda x: pc.add(x, 1)), (lambda x: pc.multiply(x, 5))\nmade = hr.op(result='int64')(pair[1])(hr.int64('x'))\n"
    assert run(made(tmp_path, text), x=pa.array([3])).to_pylist() == [15]


def test_a_class_in_a_function_is_refused_and_a_recursive_operator_is_not(tmp_path):
    text = "def outer():\n    class Inner:\n        pass\n    def f(x):\n        return Inner\n    return f\n\n\nf = outer()\n"
    with pytest.raises(Unfingerprintable, match="variable 'Inner' is a class whose source"):
        made(tmp_path, text + "\nmade = hr.op(result='int64')(f)(hr.int64('x'))\n")
    again = "@hr.op(result='int64')\ndef f(x, *, left=2):\n    return x if left == 0 else f(pc.add(x, 1), left=left - 1)\n\n\n"
    assert run(made(tmp_path, again + "made = f(hr.int64('x'))\n"), x=pa.array([3])).to_pylist() == [5]


def test_what_changes_after_the_decorator_changes_nothing(tmp_path):
    text = "LIMITS = [1, 2]\n\n\n@hr.op(result='int64')\ndef f(x):\n    return pc.min_element_wise(x, LIMITS[1])\n\n\nLIMITS[1] = 99\n"
    assert run(made(tmp_path, text + "made = f(hr.int64('x'))\n"), x=pa.array([1, 50])).to_pylist() == [1, 2]


def test_another_version_of_a_package_is_refused_with_one_error(tmp_path):
    expression = made(tmp_path, PRICES)
    document = component_document(expression.node)
    text = json.dumps(document).replace(f'\\"pyarrow\\":\\"{pa.__version__}\\"', '\\"pyarrow\\":\\"1.2.3\\"')
    other = component_from_document(json.loads(text))
    assert other.identity != expression.node.identity
    result = compile_plan({"it": other}).run(pa.table({"price": [1.0], "units": [2]}))
    assert "OtherPackageVersion" in result.failures["it"].error
    with pytest.raises(OtherPackageVersion) as caught:
        rebuilt(dict(other.params)["bundle"])
    assert (caught.value.value, caught.value.allowed) == (f"pyarrow {pa.__version__}", "pyarrow 1.2.3")


def test_only_packages_that_are_reached_are_named(tmp_path):
    text = "import numpy as np\nimport sqlalchemy\n\n\n@hr.op(result='int64')\ndef f(x):\n    return x\n\n\n"

    def packages(more):
        return set(parsed(dict(made(tmp_path, text + more).node.params)["bundle"])["packages"])

    assert packages("made = f(hr.int64('x'))\n") == {"python", "pyarrow"}
    log = "g = hr.op(result='float64')(lambda x: pa.array(np.log(x)))\nmade = g(hr.float64('x'))\n"
    assert packages(log) == {"python", "pyarrow", "numpy"}


BREAKING = {
    "rows": ("x.slice(1)", "returned 2 rows of int64", "3 rows of int64"),
    "type": ("pc.cast(x, pa.string())", "returned 3 rows of string", "3 rows of int64"),
    "kind": ("x.to_pylist()", "returned list", "an Arrow array"),
    "mean": ("pc.subtract(x, pa.scalar(pc.max(x).as_py()))", "other rows are beside it", "the same row"),
    "raises": ("pc.divide_checked(x, 0)", "raised ArrowInvalid", "divide by zero"),
}


@pytest.mark.parametrize("case", BREAKING)
def test_a_broken_promise_is_one_error(tmp_path, case):
    body, got, expected = BREAKING[case]
    text = f"@hr.op(result='int64')\ndef f(x):\n    return {body}\n\n\nmade = f(hr.int64('x'))\n"
    error = failure(made(tmp_path, text), x=[1, 2, 30])
    assert error.startswith("DataError: function f")
    assert got in error
    assert expected in error


def test_null_items_and_ids_beyond_the_buckets_do_not_come_out(tmp_path):
    lists = "@hr.op(result=hr.Ragged('int64'))\ndef f(x):\n    return pa.array([[1, None]] * len(x))\n\n\nmade = f(hr.int64('x'))\n"
    assert "null items inside lists" in failure(made(tmp_path, lists), x=[1])
    ids = "@hr.op(result=hr.Dense('int64', buckets=5))\ndef f(x):\n    return x\n\n\nmade = f(hr.int64('x'))\n"
    assert "ids from 1 to 7" in failure(made(tmp_path, ids), x=[1, 7, 3])
    assert run(made(tmp_path, ids), x=[1, None, 4]).to_pylist() == [1, None, 4]


def test_narrower_types_widen_and_no_rows_call_nothing(tmp_path):
    text = "@hr.op(result='int64')\ndef f(x):\n    return pa.array([len(x)] * len(x), pa.int8()) if len(x) == 1 else 1 / 0\n\n\nmade = f(hr.int64('x'))\n"
    assert run(made(tmp_path, text), x=pa.array([5])).to_pylist() == [1]
    assert run(made(tmp_path, text), x=pa.array([], pa.int64())).to_pylist() == []
    assert "raised ZeroDivisionError" in failure(made(tmp_path, text), x=[1, 2])


def test_mistakes_of_application():
    reverse = hr.op(result="string")(pc.utf8_reverse)
    assert reverse(pa.array(["ab"])).to_pylist() == ["ba"]
    with pytest.raises(TypeMismatch, match="must be given expressions by position"):
        reverse(3)
    with pytest.raises(InputError, match="does not take these arguments"):
        reverse(hr.text("a"), hr.text("b"))
    with pytest.raises(TypeMismatch, match="must be given expressions by position"):
        reverse(hr.text("a"), memory_pool=hr.text("b"))
    with pytest.raises(InputError, match="must be a plain value"):
        reverse(hr.text("a"), memory_pool={})
    with pytest.raises(InputError, match="unknown element type"):
        hr.op(result="text")
    with pytest.raises(DataError, match="raised ArrowNotImplementedError"):
        one_event(
            1,
            bundle=reverse.bundle,
            keywords="{}",
            takes=('{"dtype":"int64","kind":"dense"}',),
            gives='{"dtype":"string","kind":"dense"}',
        )
