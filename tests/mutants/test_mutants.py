"""The tool on a small package: it finds what no test notices, and leaves the tree as it is."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.mutants.__main__ import drawn_mutants, main
from tests.mutants.candidates import mutants_of
from tests.mutants.changed_lines import base_revision, changed_lines, tracked_files
from tests.mutants.nearest_tests import NearestTests
from tests.mutants.trials import Copy

OLD = "def old(a: int) -> bool:\n    return a > 0\n"
NEW = """

def sign(a: int) -> int:
    if a < 0:
        return -1
    return 1 if a > 0 else 0


def limited(a: int) -> int:
    return min(a, 3)
"""
#: It notices every change of ``sign``, and none of ``limited``.
TEST = """
from warehouse.numbers import limited, sign


def test_signs():
    assert [sign(a) for a in (-1, 0, 1, 2)] == [-1, 0, 1, 1]


def test_a_limit_can_be_computed():
    limited(1)
"""


def git(root: Path, *words: str) -> str:
    named = ("-c", "user.name=Test", "-c", "user.email=test@example.com")
    return subprocess.run(["git", *named, *words], cwd=root, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small project: one commit has ``old``; the working tree has more."""
    root = tmp_path / "project"
    for folder in ("warehouse", "tests/warehouse"):
        (root / folder).mkdir(parents=True)
        (root / folder / "__init__.py").write_text("")
    (root / "tests" / "__init__.py").write_text("")
    (root / "warehouse" / "numbers.py").write_text(OLD)
    (root / "tests" / "warehouse" / "test_numbers.py").write_text(TEST)
    git(root, "init", "--quiet")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "first")
    (root / "warehouse" / "numbers.py").write_text(OLD + NEW)
    return root


def contents(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file() and ".git" not in path.parts}


def replacements(line: str) -> dict[str, str]:
    """The changed lines of the mutants of a line, by kind."""
    source = f"def f(a, b, c):\n    {line}\n"
    return {one.kind: one.applied(source.encode()).decode().split("\n    ", 1)[1].strip()
            for one in mutants_of("a.py", source.encode(), frozenset({2}))}  # fmt: skip


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("x = a < b <= c", {"Lt": "x = a <= b <= c", "LtE": "x = a < b < c"}),
        ("x = a is not None", {"IsNot": "x = a is None"}),
        ("x = a in b", {"In": "x = a not in b"}),
        ("x = a and b", {"And": "x = (a) or (b)", "operand left out": "x = (b)"}),
        ("x = not a", {"Not": "x = bool(a)"}),
        ("x = a + b", {"Add": "x = (a) - (b)"}),
        ("x = a + 'text'", {}),
        ("x = a[1:]", {"int": "x = a[2:]"}),
        ("x = True", {"bool": "x = False"}),
        ("x = max(a, b)", {"opposite call": "x = min(a, b)"}),
        ("a.close()", {"call left out": "pass"}),
        ("a += b", {"update left out": "pass"}),
        ("return a", {"Return": "return None"}),
        ("return None", {}),
        ("raise ValueError(1)", {"error left out": "pass"}),
        ("x: Literal[1] = a", {}),
        ("assert a > 0", {}),
        ("x = f'{a:5}' 'ü'; y = a == b", {"Eq": "x = f'{a:5}' 'ü'; y = a != b"}),
        ("x = b if a else c", {"condition": "x = b if (not (a)) else c"}),
        ("from a import b", {}),
        ("x = zip(a, b, strict=True)", {}),
        (
            "x = dataclass(frozen=True, slots=True, eq=False)",
            {"bool": "x = dataclass(frozen=True, slots=True, eq=True)"},
        ),
        ("time.sleep(0.05)", {}),
        ("a.wait(timeout=5)", {"call left out": "pass"}),
        ("a.wait(b, timeout=-c)", {"call left out": "pass", "USub": "a.wait(b, timeout=(c))"}),
        ("A_SECS, B_BYTES = 2.0, 4", {"int": "A_SECS, B_BYTES = 2.0, 5"}),
        ("a_secs = A_SECS = 2", {"int": "a_secs = A_SECS = 3"}),
        ("A_SECS: float = 2", {}),
    ],
)
def test_each_kind_of_change(line: str, expected: dict[str, str]) -> None:
    assert replacements(line) == expected


def test_imports_for_type_checkers_and_docstrings_have_no_mutant() -> None:
    source = b'"""Text."""\nif TYPE_CHECKING:\n    x = 1\n'
    assert mutants_of("a.py", source, frozenset(range(1, 10))) == []


def test_the_texts_of_an_error_have_no_mutant_wherever_it_is_made() -> None:
    source = b"from a.errors import Lost\n\ndef f(a):\n    return Lost('text', value=a[:80], where=a or 'none')\n"
    found = mutants_of("a.py", source, frozenset(range(1, 10)))
    assert [one.kind for one in found] == ["Return"]
    other = source.replace(b"a.errors", b"a.others")
    assert [one.kind for one in mutants_of("a.py", other, frozenset(range(1, 10)))].count("int") == 1


def test_only_changed_lines_are_mutated(tree: Path) -> None:
    assert changed_lines(tree, "HEAD", ["warehouse"]) == {"warehouse/numbers.py": frozenset(range(3, 13))}
    (tree / "warehouse" / "other.py").write_text("x = 1\n")
    assert set(changed_lines(tree, "HEAD", ["warehouse"])) == {"warehouse/numbers.py", "warehouse/other.py"}
    assert min(one.line for one in drawn_mutants(tree, "HEAD", 50, seed=0, only="numbers")) > 2


def test_the_base_is_the_last_release(tree: Path) -> None:
    first = git(tree, "rev-parse", "HEAD").strip()
    assert base_revision(tree) == first
    git(tree, "tag", "v1")
    git(tree, "commit", "--quiet", "--all", "--message", "second")
    assert base_revision(tree) == "v1"


def test_equal_seeds_draw_equal_mutants(tree: Path) -> None:
    draws = [drawn_mutants(tree, "HEAD", 4, seed) for seed in (1, 1, 2, 3, 4)]
    assert draws[0] == draws[1]
    assert len(draws[0]) == 4
    assert any(draw != draws[0] for draw in draws[2:])


@pytest.mark.slow
def test_the_nearest_tests_are_named_after_the_module_or_import_it() -> None:
    tests = NearestTests(ROOT)
    assert tests.of("warehouse/scheduling/fair_shares.py")[0] == "tests/warehouse/scheduling/test_fair_shares.py"
    assert "tests/transforms/test_installation.py" in tests.of("transforms/child_process.py")
    assert tests.of("trainer/servers/held_rows.py")


def test_a_module_is_tested_by_the_tests_of_modules_that_import_it(tree: Path) -> None:
    """Step by step: from the tests of those that import it to the tests of those that import these."""
    (tree / "warehouse" / "deep").mkdir()
    for name, source in (
        ("deep/lowest", ""),
        ("deep/middle", "from warehouse.deep import lowest"),
        ("numbers", "from warehouse.deep.middle import f"),
    ):
        (tree / "warehouse" / f"{name}.py").write_text(source)
    (tree / "warehouse" / "commands.py").write_text('PLACE = "warehouse.deep.middle"\n')
    (tree / "tests" / "warehouse" / "test_commands.py").write_text("from warehouse.commands import PLACE\n")
    expected = ("tests/warehouse/test_commands.py", "tests/warehouse/test_numbers.py")
    assert NearestTests(tree).of("warehouse/deep/middle.py") == expected
    assert NearestTests(tree).of("warehouse/deep/lowest.py") == expected
    (tree / "tests" / "warehouse" / "test_middle.py").write_text("")
    assert NearestTests(tree).of("warehouse/deep/lowest.py")[0] == "tests/warehouse/test_middle.py", (
        "named after the module that is nearer"
    )


def test_a_module_without_a_test_is_tested_by_its_folder(tree: Path) -> None:
    (tree / "warehouse" / "lonely.py").write_text("x = 1\n")
    assert NearestTests(tree).of("warehouse/lonely.py") == ("tests/warehouse/test_numbers.py",)
    assert NearestTests(tree).of("pipelines/lonely.py") == ()


@pytest.mark.slow
def test_survivors_are_shown_and_the_tree_is_untouched(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(tree)
    status = main(["--root", str(tree), "--since", "HEAD", "--jobs", "2"])
    shown = capsys.readouterr().out
    assert contents(tree) == before
    assert status == 1
    survived = [line for line in shown.splitlines() if line.startswith("survived ")]
    assert sorted(line.split()[2] for line in survived) == ["Return", "int", "opposite"]
    assert all("warehouse/numbers.py:12" in line for line in survived)
    assert "+    return max(a, 3)" in shown
    last = shown.splitlines()[-1]
    assert ", 3 survived; " in last
    assert "(target: at most 5%); seed 0" in last


@pytest.mark.medium
def test_quick_tests_run_first(tree: Path) -> None:
    """A mutant that a quick test kills costs no medium test, wherever it stands."""
    (tree / "tests" / "conftest.py").write_text(
        'def pytest_configure(config):\n    config.addinivalue_line("markers", "medium: x")\n'
    )
    (tree / "tests" / "warehouse" / "test_numbers.py").write_text(
        "import pathlib\nimport pytest\n\n@pytest.mark.medium\ndef test_medium():\n    pathlib.Path('ran').touch()\n\n"
        "def test_quick():\n    assert False\n"
    )
    copy = Copy(tree, tree / "copy", tracked_files(tree), ("-n", "0"))
    assert copy.run(("tests/warehouse/test_numbers.py",)).status == 1
    assert not (tree / "copy" / "ran").exists()


@pytest.mark.medium
def test_a_test_is_run_without_mutants_once(tree: Path) -> None:
    """After a failure with a mutant it runs alone, unless it has passed before; one that fails anyway is never sound."""
    (tree / "tests" / "warehouse" / "test_numbers.py").write_text(
        "import pathlib\nfrom warehouse.numbers import sign\n\ndef test_sign():\n    pathlib.Path('ran').open('a').write('x')\n    assert sign(2) == 1\n\n"
        "def test_never():\n    assert False\n"
    )
    copy, tests = Copy(tree, tree / "copy", tracked_files(tree), ("-n", "0")), ("tests/warehouse/test_numbers.py",)
    (zero,) = [
        one
        for one in drawn_mutants(tree, "HEAD", 99, 0)
        if one.line == 8 and one.kind == "int" and one.replacement == "2"
    ]
    for runs in (2, 3):
        assert copy.run_mutated(zero, tests).status == 1
        assert copy.failed_are_sound(tests)
        assert (tree / "copy" / "ran").read_text() == "x" * runs, "with the mutant, and at the first time without"
    assert copy.run(tests).status == 1
    assert not copy.failed_are_sound(tests)


@pytest.mark.slow
def test_tests_that_fail_anyway_judge_nothing(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "tests" / "warehouse" / "test_numbers.py").write_text("def test_it():\n    assert False\n")
    assert main(["--root", str(tree), "--since", "HEAD", "--count", "2", "--jobs", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("0 mutants: 0 killed, 0 survived, 2 not judged")


def test_without_tests_a_mutant_counts_as_a_survivor(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "tests" / "warehouse" / "test_numbers.py").unlink()
    assert main(["--root", str(tree), "--since", "HEAD", "--count", "2", "--jobs", "1"]) == 1
    assert "no tests" in capsys.readouterr().out


@pytest.mark.slow
def test_a_killed_run_leaves_the_tree_as_it_is(tree: Path) -> None:
    before, status = contents(tree), git(tree, "status", "--porcelain")
    command = [sys.executable, "-m", "tests.mutants", "--root", str(tree), "--since", "HEAD", "--jobs", "1"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(("killed", "survived")):
            break
    process.send_signal(signal.SIGKILL)
    process.stdout.close()
    process.wait()
    assert (contents(tree), git(tree, "status", "--porcelain")) == (before, status)
