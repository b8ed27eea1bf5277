"""Comments, docstrings, messages and pages use plain terms instead of these idioms."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
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
_IDIOM = re.compile(rf"\b(?:{'|'.join(IDIOMS)})\b".replace(" ", r"(?:[ \t]+|[ \t]*\n[ \t]*)"), re.IGNORECASE)

#: The packages and pages that are read. The texts of docs/operators.md come from declarations in ``transforms``.
AREAS = (
    "transforms",
    "warehouse",
    "pipelines",
    "trainer",
    "headrace",
    "benchmarks",
    "docs",
    "README.md",
    "CHANGELOG.md",
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
    return next(term for pattern, term in IDIOMS.items() if re.fullmatch(pattern, " ".join(words.lower().split())))


def findings(path: Path) -> list[str]:
    """Each idiom of a file: where, the words, and the plain term."""
    found = (
        (line + text[: match.start()].count("\n"), match[0])
        for line, text in texts(path)
        for match in _IDIOM.finditer(text)
    )
    return [f"{path.relative_to(ROOT)}:{line}: {words!r}; write: {plain_term(words)}" for line, words in sorted(found)]


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


def test_plain_terms_hold_no_idiom() -> None:
    assert all(term and not _IDIOM.search(term) for term in IDIOMS.values())
