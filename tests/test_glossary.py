"""The glossary has one entry a term, in alphabetical order, and its references lead to entries."""

from __future__ import annotations

import re

from tests.conftest import ROOT

_ROW = re.compile(r"^\| (.+?) \| ([a-z, ]+) \| (.+) \|$", re.MULTILINE)
_MEANING = re.compile(r"\((\d)\) ")


def entries() -> list[tuple[str, str]]:
    rows = _ROW.findall((ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"))
    return [(term, definition) for term, _, definition in rows if term != "term"]


def test_no_term_appears_twice_and_terms_are_sorted():
    terms = [term.casefold() for term, _ in entries()]
    assert len(terms) > 150
    assert terms == sorted(set(terms))


def test_an_entry_is_for_one_term():
    assert [term for term, _ in entries() if not re.fullmatch(r"[\w -]+", term)] == []


def test_a_synonym_leads_to_an_entry():
    definitions = dict(entries())
    found = {term: re.match(r"see \*([^*]+)\*", definition) for term, definition in definitions.items()}
    synonyms = {term: match[1] for term, match in found.items() if match}
    assert synonyms
    assert [term for term, other in synonyms.items() if other not in definitions or other in synonyms] == []


def test_meanings_are_numbered():
    numbers = {term: _MEANING.findall(definition) for term, definition in entries() if definition.startswith("(1) ")}
    assert numbers
    assert [term for term, found in numbers.items() if found != [str(n) for n in range(1, len(found) + 1)]] == []
