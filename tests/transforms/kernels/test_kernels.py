"""Kernels compared with other implementations, and on large sizes."""

from __future__ import annotations

import ast
import decimal
import functools
import importlib
import itertools
import math
import os
import pkgutil
import random
import subprocess
import sys
import unicodedata
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import ROOT
from tests.support.kept_kernels import with_bounds_checks
from tests.transforms.adversarial import arrow_column, columns_for, computed, operation
from transforms import kernels
from transforms.columns.columns import Numbers, RaggedItems, Strings, from_arrow
from transforms.errors import DataError
from transforms.kernels import compiled, decimals, farmhash, fused, hashing, kept_code, lists, sets, spans, text, words
from transforms.kernels.arrow import to_arrow
from transforms.kernels.kept_code import KeptCode
from transforms.operators import REGISTRY, numbers, unicode14
from transforms.operators import farmhash as plain_farmhash
from transforms.operators.full_pass import FULL_PASS
from transforms.types import Dense, DType, Ragged

_TEXTS = Dense(DType.STRING)


def test_every_declared_kernel_exists() -> None:
    for operator in REGISTRY:
        if operator.name not in FULL_PASS:
            assert callable(getattr(importlib.import_module(operator.kernel.module), operator.kernel.function))


def _file(module: ModuleType) -> Path:
    return Path(str(module.__file__))


def test_every_compiled_function_is_kept_under_the_digest_of_its_sources() -> None:
    from numba.core.dispatcher import Dispatcher

    modules = [
        importlib.import_module(f"{kernels.__name__}.{found.name}") for found in pkgutil.iter_modules(kernels.__path__)
    ]
    assert {fused, hashing, lists, sets, text, words} <= set(modules)
    for module in modules:
        own = [
            value
            for value in vars(module).values()
            if isinstance(value, Dispatcher) and value.__module__ == module.__name__
        ]
        for value in own:
            assert isinstance(value._cache.files._cache_file, KeptCode), value
            assert value._cache.files._cache_file._source_stamp == compiled.digest_of_sources(_file(module)), value


@pytest.mark.slow
def test_code_of_other_sources_is_never_run_even_if_its_successor_was_killed_while_it_was_kept(tmp_path) -> None:
    body, kernels = tmp_path / "body.py", tmp_path / "kernels"
    run = [sys.executable, "-c", "import body; print(body.f(1))"]
    killed = [sys.executable, "-c", "import os; os.replace = lambda *_: os._exit(9); import body; body.f(1)"]
    repository = str(ROOT)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(kernels), "PYTHONPATH": f"{repository}{os.pathsep}{tmp_path}"}

    def given_by(source: str) -> str:
        body.write_text(
            f"from transforms.kernels.compiled import compiled\n\n@compiled\ndef f(x):\n    return {source}\n"
        )
        done = subprocess.run(run, env=environment, capture_output=True, text=True, check=True, cwd=tmp_path)
        return done.stdout.strip()

    assert given_by("x + 1") == "2"
    body.write_text(body.read_text().replace("x + 1", "x + 2"))
    assert subprocess.run(killed, env=environment, cwd=tmp_path).returncode == 9
    assert given_by("x + 2") == "3"
    assert given_by("x + 1") == "2"


@pytest.mark.slow
def test_nothing_is_read_of_no_words() -> None:
    """Numba checks bounds here."""
    text = (
        "import pyarrow as pa\nfrom transforms.expressions.expression import text\nfrom transforms.execution.plan import compile_plan\n"
        "words = {'it': (text('a').unigrams() & text('b').unigrams()).node}\n"
        "for fused in (True, False):\n"
        "    for row in (('x', None), (None, 'x'), (None, None)):\n"
        "        batch = pa.table([pa.array([part], pa.string()) for part in row], ['a', 'b'])\n"
        "        assert not compile_plan(words, fused=fused).run(batch).failures, row\n"
    )
    environment = with_bounds_checks(os.environ)
    environment["PYTHONPATH"] = str(ROOT)
    subprocess.run([sys.executable, "-c", text], env=environment, check=True)


def test_cached_code_matches_its_key_under_concurrent_writers(tmp_path) -> None:
    first, second = (KeptCode(str(tmp_path), "f-1.py311", "sources") for _ in range(2))
    assert first.load("int64") is None
    first.save("int64", b"whole")
    second.save("float64", b"broken")
    assert (second.load("int64"), first.load("float64")) == (b"whole", b"broken")
    assert KeptCode(str(tmp_path), "f-1.py311", "other sources").load("int64") is None
    for path in tmp_path.iterdir():  # a power cut, half of the bytes zeros
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2] + bytes(len(content) - len(content) // 2))
    assert [first.load(key) for key in ("int64", "float64")] == [None, None]


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [
        ("config", "OPT", 1),
        ("config", "BOUNDSCHECK", 1),
        ("config", "SLP_VECTORIZE", 1),
        ("llvmlite", "__version__", "0"),
    ],
)
def test_code_of_another_compiler_or_other_settings_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, name: str, value: object
) -> None:
    file = KeptCode(str(tmp_path), "f-1.py311", "sources")
    file.save("int64", b"whole")
    assert file.load("int64") == b"whole"
    monkeypatch.setattr(getattr(kept_code, place), name, value)
    assert file.load("int64") is None
    file.save("int64", b"other")
    assert file.load("int64") == b"other"
    monkeypatch.undo()
    assert file.load("int64") == b"whole"


def _run_body(
    folder: Path, source: str, program: str, *, module: str = "body", kernels: Path | None = None
) -> list[str]:
    """What a process prints that imports ``source`` as ``body``; compiled code is kept in ``kernels``, or in ``folder``."""
    (folder / f"{module}.py").write_text(f"from transforms.kernels.compiled import compiled\n\n{source}\n")
    environment = os.environ | {
        "NUMBA_CACHE_DIR": str(kernels or folder / "kernels"),
        "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}",
    }
    run = [sys.executable, "-c", f"import sys, {module} as body\n{program}"]
    done = subprocess.run(run, env=environment, capture_output=True, text=True, check=True, cwd=folder)
    return done.stdout.split()


@pytest.mark.medium
def test_compiled_code_is_loaded_without_what_compiling_needs(tmp_path) -> None:
    source = "@compiled\ndef f(x):\n    return x + 1"
    program = "print(body.f(1), 'scipy.linalg' in sys.modules, 'numba.np.linalg' in sys.modules)"
    assert _run_body(tmp_path, source, program)[0] == "2"
    assert _run_body(tmp_path, source, program) == ["2", "False", "False"]


@pytest.mark.medium
def test_installations_at_several_paths_share_code_and_modules_of_other_names_do_not(tmp_path) -> None:
    source = "@compiled\ndef f(x):\n    return x + 1"
    program = "f = body.f\nprint(f(1), sum(f.stats.cache_misses.values()), f.__module__)"

    def seen_at(place: str, source: str = source, module: str = "body") -> list[str]:
        (tmp_path / place).mkdir()
        return _run_body(tmp_path / place, source, program, module=module, kernels=tmp_path / "kernels")

    assert seen_at("first") == ["2", "1", "body"]
    assert seen_at("second") == ["2", "0", "body"]
    assert seen_at("renamed", module="other") == ["2", "1", "other"]
    assert seen_at("changed", source.replace("x + 1", "x + 2")) == ["3", "1", "body"]
    assert sorted(path.parent.name for path in (tmp_path / "kernels").rglob("*.nbc")) == ["body", "body", "other"]


@pytest.mark.slow
def test_code_that_needs_more_of_numba_loads_it_first(tmp_path) -> None:
    """Hashes of texts depend on symbols that only a module of numba's compiler defines."""
    source = "@compiled\ndef f(x):\n    return hash(x)"
    program = "print(body.f('text') == hash('text'), 'numba.cpython.hashing' in sys.modules)"
    for _ in range(2):
        assert _run_body(tmp_path, source, program) == ["True", "True"]


@pytest.mark.slow
def test_a_kernel_is_compiled_where_its_callee_is_loaded(tmp_path) -> None:
    source = "@compiled\ndef g(x):\n    return x + 1\n\n@compiled\ndef f(x, y):\n    return g(x) * g(y)"
    assert _run_body(tmp_path, source, "print(body.f(1, 2))") == ["6"]
    assert _run_body(tmp_path, source, "print(body.g(1), body.f(1, 2.5), body.f(1, 2))") == ["2", "7.0", "6"]


def test_sources_are_those_that_are_imported_however_indirectly() -> None:
    names = {path.name for path in compiled.sources_of(_file(hashing))}
    assert {"hashing.py", "farmhash.py", "buffers.py", "spans.py", "compiled.py", "declaration.py"} <= names
    assert "times.py" not in names
    assert "unicode14.py" in {path.name for path in compiled.sources_of(_file(text))}


def _imported_by_the_parser(source: bytes) -> set[str]:
    modules = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "modules are imported by their whole name"
            assert node.module is not None
            modules.add(node.module)
            if node.module in compiled._PACKAGES:
                modules |= {f"{node.module}.{name.name}" for name in node.names}
    return {module for module in modules if module.startswith(compiled._DIGESTED)}


@pytest.mark.medium
@pytest.mark.parametrize("package", ["transforms", "trainer", "warehouse"])
def test_imports_are_found_as_the_parser_finds_them(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert len(files) > 20
    for file in files:
        source = file.read_bytes()
        assert compiled._imported(source) == _imported_by_the_parser(source), file


_IN_PARENTHESES = """from transforms.kernels import (
    spans,  # a comment, with a comma
    text,
    # words (all of them)
    words as other,
)"""


@pytest.mark.parametrize(
    "source",
    [
        _IN_PARENTHESES,
        _IN_PARENTHESES.replace("\n", "\r\n"),
        "from transforms.kernels import(spans,text)",
        "from transforms.kernels import (spans, # )\n text)\nfrom transforms.operators import numbers",
        "from transforms.kernels import \\\n    spans, \\\n    text",
        "from transforms.kernels \\\n    import spans, text as t # , words",
        "from \\\n  transforms.kernels.spans import (  # all\n    load32 as load,\n)",
        "from  transforms.kernels\timport spans , text",
        "import transforms.kernels.spans as spans, transforms.kernels.text",
        "import transforms.kernels.spans, \\\n    transforms.kernels.text  # , os",
        "if 1:\n    from transforms.kernels import spans\nelse:\n\tfrom transforms.kernels import text",
        "from transforms.columns import columns, positions",
        "from transforms.columns.positions import POSITION_MAX",
        "import os\nfrom os import path\nimportant = 1\nfromage = 2",
        "from transforms.kernels import (spans)",
    ],
)
def test_imports_of_any_form_are_found(source: str) -> None:
    expected = _imported_by_the_parser(source.encode())
    assert bool(expected) != source.startswith("import os")
    assert compiled._imported(source.encode()) == expected


def test_what_compiled_code_holds_is_of_its_sources() -> None:
    """Numba makes a constant of each global that a function reads: its module must be among the digested sources."""
    from numba.core.dispatcher import Dispatcher

    seen, own = 0, [ROOT / name for name in ("transforms", "warehouse", "trainer")]
    for package in compiled._DIGESTED:
        for file in ROOT.joinpath(*package.split(".")).glob("*.py"):
            module = importlib.import_module(f"{package}.{file.stem}" if file.stem != "__init__" else package)
            sources = compiled.sources_of(file)
            origins = {
                alias.asname or alias.name: ROOT.joinpath(*node.module.split(".")).with_suffix(".py")
                for node in ast.walk(ast.parse(file.read_bytes()))
                if isinstance(node, ast.ImportFrom) and node.module
                for alias in node.names
            }
            for value in list(vars(module).values()):
                if not isinstance(value, Dispatcher) or value.__module__ != module.__name__:
                    continue
                for name in value.py_func.__code__.co_names:
                    held = vars(module).get(name)
                    origin = _file(held) if isinstance(held, ModuleType) and held.__file__ else origins.get(name)
                    if origin is not None and origin.is_file() and any(map(origin.is_relative_to, own)):
                        assert origin in sources, (value, name)
                        seen += 1
    assert seen > 100


def test_a_change_in_an_imported_source_is_a_change_of_the_digest(tmp_path, monkeypatch) -> None:
    kernels = tmp_path / "transforms" / "kernels"
    kernels.mkdir(parents=True)
    (kernels / "a.py").write_text("from transforms.kernels.b import x\n")
    (kernels / "b.py").write_text("from transforms.kernels.a import y\nx = 1\n")
    monkeypatch.setattr(compiled, "ROOT", tmp_path)
    before = compiled.digest_of_sources(kernels / "a.py")
    (kernels / "b.py").write_text("x = 2\n")
    for cached in (compiled.digest_of_sources, compiled.sources_of, compiled._scan):
        cached.cache_clear()
    assert compiled.digest_of_sources(kernels / "a.py") != before


@pytest.mark.parametrize("size", [*range(70), 127, 128, 129, 191, 192, 193, 1000])
def test_fingerprint_equals_plain_python(size: int) -> None:
    data = random.Random(size).randbytes(size + 3)
    array = spans.frozen(np.frombuffer(data, np.uint8))
    assert int(farmhash.fingerprint64(array, 2, size)) == plain_farmhash.fingerprint64(data[2 : 2 + size])


_SPACED = st.text(
    "ab\u00e9\u20ac\u3042\U0001d518 \t\x1f\x00\u0085\u00a0\u1680\u2003\u2028\u202f\u205f\u3000\u200b\u2060",
    max_size=200,
)


@given(st.lists(_SPACED, max_size=5), st.integers(0, 80))
def test_words_equal_plain_python_across_blocks(texts: list[str], behind: int) -> None:
    array = pa.array([*texts, "x" * behind]).slice(0, len(texts))
    column = from_arrow(array, _TEXTS)
    assert isinstance(column, Strings)
    words_of = to_arrow(text.unigrams(column), Ragged(DType.STRING)).to_pylist()
    assert words_of == [value.split() for value in texts]


def test_fingerprints_known_by_heart() -> None:
    # FARM_FINGERPRINT in BigQuery's documentation is the signed form of these.
    assert plain_farmhash.fingerprint64(b"") == 0x9AE16A3B2F90404F
    assert plain_farmhash.fingerprint64(b"1footrue") == -1541654101129638711 % 2**64
    assert plain_farmhash.fingerprint64(b"2applefalse") == 2794438866806483259


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_decimals_go_there_and_back(values: list[int]) -> None:
    data, offsets = decimals.write_decimals(spans.frozen(np.array(values, np.int64)))
    written = data.tobytes()
    assert [written[a:b].decode() for a, b in itertools.pairwise(offsets)] == [str(v) for v in values]
    back, good = decimals.read_decimals(data, offsets[:-1], offsets[1:])
    assert good.all()
    assert back.tolist() == values


def test_white_space_is_what_python_says() -> None:
    everything = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    column = from_arrow(pa.array([f"a{character}b" for character in everything]), _TEXTS)
    counts = np.diff(text.unigrams(column).offsets)
    spaces = {character for character, count in zip(everything, counts, strict=True) if count == 2}
    assert spaces == {character for character in everything if character.isspace()}
    assert len(spaces) == 29


@pytest.mark.medium
def test_lower_and_normalize_every_code_point() -> None:
    everything = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    column = from_arrow(pa.array(everything), _TEXTS)
    lowered = to_arrow(text.lower(column), _TEXTS).to_pylist()
    normalized = to_arrow(text.normalize(column), _TEXTS).to_pylist()
    assert lowered == [unicode14.lower(character) for character in everything]
    assert normalized == [unicode14.normalize(character) for character in everything]


def test_characters_younger_than_unicode_14_stay_as_they_are() -> None:
    # Unicode 15.0 and 16.0 gave these a decomposition or a lower case.
    young = ["\U0001e030", "\U0001e06d", "\u1c89", "\ua7cb", "\ua7da", "\U00010d50"]
    for character in young:
        assert unicode14.normalize(character) == unicode14.lower(character) == character
        assert unicode14._piecewise(f"ΑΣ{character}E\u0301", str.lower) == f"ας{character}e\u0301"


def test_cutting_at_unknown_characters_changes_nothing_in_unicode_14() -> None:
    if unicodedata.unidata_version != unicode14.VERSION:
        pytest.skip("only a Python with Unicode 14.0 can tell")
    known = [chr(c) for c in range(sys.maxunicode + 1) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]
    unknown = ["\u0378", "\U0001e030", "\u1c89", "\U0010ffff", "\U000e0fff"]
    assert unicode14._KNOWN.sub("", "".join(known)) == ""
    assert unicode14._KNOWN.sub("", "".join(unknown)) == "".join(unknown)
    source = random.Random(14)
    marks = ["\u0301", "\u0308", "\u0323", "Σ", "ς", "a", "\u1161", "\u1100", "\u11a8"]
    for _ in range(3000):
        sample = "".join(source.choice((source.choice(known), source.choice(unknown), *marks)) for _ in range(8))
        for change in (str.lower, lambda piece: unicodedata.normalize("NFKC", piece)):
            assert unicode14._piecewise(sample, change) == change(sample)


def test_log1p_is_within_two_units_of_the_truth() -> None:
    source = random.Random(1)
    near_zero = [source.uniform(-1, 1) * 10 ** source.uniform(-18, 0) for _ in range(2000)]
    others = [10 ** source.uniform(-3, 308) for _ in range(1000)] + [
        -1 + 10 ** source.uniform(-16, 0) for _ in range(500)
    ]
    values = [x for x in (*near_zero, *others) if x > -1]
    column = columns_for([Dense(DType.FLOAT64)])
    got = computed(operation("log1p", column, {}), [pa.array(values)], len(values)).to_pylist()
    with decimal.localcontext(prec=60):
        for x, y in zip(values, got, strict=True):
            truth = (1 + decimal.Decimal(x)).ln()
            assert abs(decimal.Decimal(y) - truth) <= 2 * decimal.Decimal(math.ulp(y)), x
            assert y == numbers.log1p(x)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [DType.INT64, DType.STRING])
@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 500, 5000])
def test_set_kernels_on_long_lists(dtype: DType, size: int) -> None:
    source = random.Random(size)
    kind = Ragged(dtype)
    draw = (lambda: source.randrange(2 * size + 1)) if dtype is DType.INT64 else (
        lambda: "same prefix " * source.randrange(2) + str(source.randrange(size + 1))
    )  # fmt: skip
    left, right = [[draw() for _ in range(size)], [draw()]], [[draw() for _ in range(size // 2)], [draw(), draw()]]
    columns = [from_arrow(arrow_column(rows, kind), kind) for rows in (left, right)]
    for name, args in (("intersect", 2), ("union", 2), ("difference", 2), ("unique", 1)):
        got = to_arrow(getattr(sets, name)(*columns[:args]), kind).to_pylist()
        want = [REGISTRY[name].reference(*row[:args]) for row in zip(left, right, strict=True)]
        assert got == want, name


def test_tokens_are_spans_over_the_text_they_came_from() -> None:
    column = from_arrow(pa.array(["a b", "c d e"]), _TEXTS)
    tokens = text.unigrams(column)
    assert isinstance(tokens, RaggedItems)
    assert isinstance(tokens.items, Strings)
    assert np.shares_memory(tokens.items.data, column.data)
    same = sets.intersect(tokens, tokens)
    assert np.shares_memory(same.items.data, column.data)
    assert np.shares_memory(lists.concat(tokens, same).items.data, column.data)


def test_only_distinct_texts_that_change_beyond_ascii_reach_python(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def record(change: str, value: str) -> str:
        seen.append(f"{change} {value}")
        return value

    for change in ("lower", "upper", "normalize"):
        monkeypatch.setattr(unicode14, change, functools.partial(record, change))
    column = from_arrow(pa.array(["Plain", "É", "É", "ü", "搜索", "e\u0301", "É"]), _TEXTS)
    for kernel in (text.lower, text.upper, text.normalize):
        kernel(column)
    assert seen == ["lower É", "upper ü", "normalize e\u0301"]


def test_a_cross_too_large_for_arrow_is_refused() -> None:
    many = RaggedItems(np.array([0, 50_000], np.int32), Numbers(np.arange(50_000)))
    with pytest.raises(DataError, match="combinations"):
        hashing.cross(many, many, buckets=10)


def test_ngrams_too_large_for_arrow_are_refused() -> None:
    tokens = ["x" * 100_000] * 400
    column = from_arrow(arrow_column([tokens], Ragged(DType.STRING)), Ragged(DType.STRING))
    with pytest.raises(DataError, match="bytes of n-grams"):
        text.ngrams(column, n=200, joiner=" ")


@pytest.fixture(scope="module")
def tf() -> ModuleType:
    return pytest.importorskip("tensorflow")


@pytest.fixture(scope="module")
def texts() -> list[str]:
    source = random.Random(7)
    sizes = [*range(0, 140), *(source.randrange(140, 2000) for _ in range(20))]
    alphabets = ["abcdefghij 0123", "äöüß", "搜索广告你好", "👩🎈a"]
    return ["".join(source.choice(alphabet) for _ in range(size)) for size in sizes for alphabet in alphabets]


class TestAgainstTensorFlow:
    """The hashes, bit for bit. Skipped where TensorFlow is not installed."""

    def test_hash_buckets_of_text(self, tf: ModuleType, texts: list[str]) -> None:
        for buckets in (1, 7, 1000, 2**31 - 1, 10**15):
            root = operation("hash_buckets", columns_for([_TEXTS]), {"buckets": buckets})
            got = computed(root, [pa.array(texts)], len(texts))
            assert got.to_pylist() == tf.strings.to_hash_bucket_fast(texts, buckets).numpy().tolist()

    def test_salt_is_text_in_front(self, tf: ModuleType, texts: list[str]) -> None:
        root = operation("hash_buckets", columns_for([_TEXTS]), {"buckets": 99_991, "salt": "sälz"})
        got = computed(root, [pa.array(texts)], len(texts))
        assert got.to_pylist() == tf.strings.to_hash_bucket_fast(["sälz" + t for t in texts], 99_991).numpy().tolist()

    def test_hash_buckets_of_integers(self, tf: ModuleType) -> None:
        source = random.Random(3)
        values = [
            0,
            -1,
            2**63 - 1,
            -(2**63),
            *(source.randrange(-(10**18), 10**18) >> source.randrange(60) for _ in range(500)),
        ]
        root = operation("hash_buckets", columns_for([Dense(DType.INT64)]), {"buckets": 1_000_003})
        got = computed(root, [pa.array(values)], len(values))
        text_of = tf.strings.as_string(tf.constant(values, tf.int64))
        assert got.to_pylist() == tf.strings.to_hash_bucket_fast(text_of, 1_000_003).numpy().tolist()

    def test_cross_of_lists(self, tf: ModuleType, texts: list[str]) -> None:
        source = random.Random(5)
        rows = 200
        words = [[source.choice(texts) for _ in range(source.randrange(4))] for _ in range(rows)]
        ids = [[source.randrange(-(2**63), 2**63) for _ in range(source.randrange(3))] for _ in range(rows)]
        third = [source.choice(texts) for _ in range(rows)]
        kinds = [Ragged(DType.STRING), Ragged(DType.INT64), _TEXTS]
        root = operation("cross", columns_for(kinds), {"buckets": 1_000_003})
        arrays = [arrow_column(v, kind) for v, kind in zip((words, ids, third), kinds, strict=True)]
        inputs = [
            tf.RaggedTensor.from_row_lengths(
                tf.constant([item for row in column for item in row], dtype), [len(row) for row in column]
            ).to_sparse()
            for column, dtype in ((words, tf.string), (ids, tf.int64), ([[t] for t in third], tf.string))
        ]
        want = tf.RaggedTensor.from_sparse(tf.sparse.cross_hashed(inputs, num_buckets=1_000_003)).to_list()
        want += [[]] * (rows - len(want))
        assert computed(root, arrays, rows).to_pylist() == want

    def test_cross_of_dense_columns(self, tf: ModuleType, texts: list[str]) -> None:
        numbers = list(range(-len(texts) // 2, len(texts) - len(texts) // 2))
        root = operation("cross", columns_for([_TEXTS, Dense(DType.INT64)]), {"buckets": 1000})
        got = computed(root, [pa.array(texts), pa.array(numbers)], len(texts))
        inputs = [tf.constant(texts)[:, None], tf.constant(numbers, tf.int64)[:, None]]
        assert got.to_pylist() == tf.sparse.cross_hashed(inputs, num_buckets=1000).values.numpy().tolist()

    def test_bucketize(self, tf: ModuleType) -> None:
        values = [-1.0, 0.0, 0.5, 1.0, 2.0, math.inf, -math.inf, math.nan]
        root = operation("bucketize", columns_for([Dense(DType.FLOAT32)]), {"boundaries": (0.0, 0.5, 2.0)})
        got = computed(root, [pa.array(values, pa.float32())], len(values))
        want = tf.raw_ops.Bucketize(input=tf.constant(values, tf.float32), boundaries=[0.0, 0.5, 2.0])
        assert got.to_pylist() == want.numpy().tolist()
