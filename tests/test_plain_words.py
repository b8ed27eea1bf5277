"""Comments, docstrings, messages and pages use plain terms instead of these idioms."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

#: A pattern of words, and what to write instead. A space stands for a line break too.
IDIOMS = {
    r"who(m|ever|mever)": "name the subject: the worker, the caller, the client",
    r"(no|some|every|any)body( else)?": "name the subject: no worker, another process, all readers",
    r"whose turn": "the client that is served next; fair queueing",
    r"what(ever)? (becomes?|became) of": "the result, the outcome, the state",
    r"told(?! apart)": "the thing as subject: the option sets, the worker receives, the command prints",
    r"believe[sd]?": "accept, or trust as in trusted input",
    r"guilty|innocen(t|ce)|notorious": "the culprit; not the cause; a known culprit",
    r"die[sd]|deaths?": "a process ends, exits, crashes or is killed",
    r"anew|afresh": "again",
    r"besides": "also, in addition",
    r"reckon(s|ed|ing)?": "compute, count, estimate",
    r"foretold|foresee[ns]?|foresaw": "estimated, predicted, planned",
    r"seldom": "rarely",
    r"in \w+ stead": "instead",
    r"go(es)? by|went by": "use, follow, be decided by",
    r"lies? ahead": "must be in the future",
    r"a?mend(s|ed|ing)?": "fix, repair, correct",
    r"set aside": "quarantined (a task), rejected (a row)",
    r"as good as (none|nothing)": "say what happens: it is ignored, it is computed again",
    r"vouch(es|ed)?( for)?": "verify, be the checksum of",
    r"(hold|holds|held) (\S+ )?against": "compare with",
    r"g(ive|ives|ave|iven|iving) (\S+ )?back(?! to the system)": "release (a task, a machine), return (a value)",
    r"(secs|seconds?|bytes?|bits?|ns) an? (row|event|file|value|fragment|component|partition)": "per row, per event",
    r"rooms?": "package (of code), space (on a disk or a screen)",
}
#: Habits of docstrings, comments and error texts that say what a thing is without naming it; pages may use the words otherwise.
HABITS = {
    r"(must|may|can|should|to) be of": "must have, must belong to, needs, consists of: a calibration needs a binary label",
    r"(is|are|was|were) of (no|none|one|another|this|that|these|several)": "has, belongs to: the worker has another release",
    r"(that|which) (is|are) (?-i:none)(?! of)": "say what is wrong: bytes that are not such a document",
    r"an? \w+ is (?-i:none) that": "not valid for: a label is not valid for this task",
    r"what (the|its|their) \w+ (is|are) of": "name it: the generation of the rows, the owner of the part",
    r"tables? stands?(?! for)|stands? (where|elsewhere)": "the placement of the tables; a table that moves",
    r"--[\w-]+ must (train|run|hold|start|stay|serve)": "an option cannot do it: --plan with --tpu needs a single process",
    r"must (greet|be few|have them|train on)": "needs, or the rule for the value: an answer must fit in one message",
    r"all (\w+) have alike": "equal on all cores",
}


def _pattern(idioms: Iterable[str]) -> re.Pattern[str]:
    """Any of these idioms, as whole words; a space stands for a line break too."""
    return re.compile(rf"(?<!\w)(?:{'|'.join(idioms)})(?!\w)".replace(" ", r"(?:[ \t]+|[ \t]*\n[ \t]*)"), re.IGNORECASE)


_IN_PAGES, _IN_CODE = _pattern(IDIOMS), _pattern(IDIOMS | HABITS)

#: The packages and pages that are read. The texts of docs/operators.md come from declarations in ``transforms``.
AREAS = (
    "transforms",
    "warehouse",
    "pipelines",
    "trainer",
    "headrace",
    "benchmarks",
    "docs",
    "docs/decisions",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "tests/README.md",
)


def files_of(area: str) -> list[Path]:
    """The Python files of a package, the pages of docs, or the one page."""
    if area.endswith(".md"):
        return [ROOT / area]
    pages = set((ROOT / area).glob("*.md")) - {ROOT / "docs/operators.md"}
    return sorted({*(ROOT / area).rglob("*.py")} | pages)


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Lines and texts: a whole page, or a module's comments, docstrings and other string constants."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield 1, source
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value != "nobody":  # a user of Unix
            yield node.lineno, node.value


def plain_term(words: str) -> str:
    plain = " ".join(words.lower().split())
    return next(term for pattern, term in (IDIOMS | HABITS).items() if re.fullmatch(pattern, plain))


def findings(path: Path) -> list[str]:
    """Each idiom of a file: where, the words, and the plain term."""
    pattern = _IN_PAGES if path.suffix == ".md" else _IN_CODE
    found = (
        (line + text[: match.start()].count("\n"), match[0])
        for line, text in texts(path)
        for match in pattern.finditer(text)
    )
    return [f"{path.relative_to(ROOT)}:{line}: {words!r}; write: {plain_term(words)}" for line, words in sorted(found)]


@pytest.mark.medium
@pytest.mark.parametrize("area", AREAS)
def test_texts_hold_no_idiom(area: str) -> None:
    files = files_of(area)
    assert files
    assert [one for path in files for one in findings(path)] == []


def test_idioms_are_found_in_comments_strings_and_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.test_plain_words.ROOT", tmp_path)
    module, page = tmp_path / "module.py", tmp_path / "page.md"
    module.write_text('"""Whose\nturn it is."""\n\nnobody = f"{1} is told"  # seldom\n', encoding="utf-8")
    page.write_text("The two cannot be told apart.\nIt is computed anew.\n", encoding="utf-8")
    assert [one.split(";")[0] for one in findings(module)] == [
        "module.py:1: 'Whose\\nturn'",
        "module.py:4: 'seldom'",
        "module.py:4: 'told'",
    ]
    assert findings(page) == ["page.md:2: 'anew'; write: again"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("calibration must be of a model with a binary label", "must be of"),
        ("the worker is of another release", "is of another"),
        ("for bytes that are none.", "that are none"),
        ("a label is none that the task learns", "a label is none that"),
        ("What the rows are of: another number", "What the rows are of"),
        ("tables that stand where they cannot be", "stand where"),
        ("the tables stand by a plan", "tables stand"),
        ("--embedding-workers must train on this machine", "--embedding-workers must train"),
        ("the rows of an answer must be few", "must be few"),
        ("numbers that all cores have alike", "all cores have alike"),
    ],
)
def test_habits_are_found_in_code_only(text: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.test_plain_words.ROOT", tmp_path)
    module, page = tmp_path / "module.py", tmp_path / "page.md"
    module.write_text(f"raise ValueError({text!r})\n", encoding="utf-8")
    page.write_text(text, encoding="utf-8")
    assert [one.split("'")[1] for one in findings(module)] == [words]
    assert findings(page) == []


@pytest.mark.parametrize(
    "text",
    [
        "a name stands for a path; a table stands for its rows",
        "the tokens that are none of the words",
        "a value that is None",
        "must be often",
        "--hosts must go with --run-dir",
    ],
)
def test_plain_texts_are_no_habits(text: str) -> None:
    assert not _IN_CODE.search(text)


def test_plain_terms_hold_no_idiom() -> None:
    assert all(term and not _IN_CODE.search(term) for term in (IDIOMS | HABITS).values())
