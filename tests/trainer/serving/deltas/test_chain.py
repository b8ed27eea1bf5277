"""Which links are applied to a state: a decision over numbers and hashes alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainer.checkpoints.local_run import LocalRun
from trainer.errors import LinkRefused, TornCheckpoint
from trainer.serving.deltas.chain import Link, Position, check_chain, links_to_apply, links_until
from trainer.serving.deltas.link_manifest import DELTA, FULL, LinkManifest, LinkTable, ServedCommit

MODEL = "a" * 64


def sha(text: object) -> str:
    return f"{text:0>64}"


def link(number: int, kind: str, *, encoding: str = "float32", previous: str | None = None, chain: str = "0") -> Link:
    """Link n of a chain, of the commit after n + 1 epochs."""
    files = {name: sha(0) for name in ("ids", "values", "removed", *(("scales",) if encoding == "int8" else ()))}
    table = LinkTable("embedding", "user", 8, encoding, 0, 0, 0, 0.0, files)
    before = sha(f"c{chain}{number - 1}") if number else ""
    manifest = LinkManifest(
        number,
        kind,
        before if previous is None else previous,
        MODEL,
        commit(number),
        commit(number - 1) if kind == DELTA else None,
        (table,),
        (),
    )
    return Link(LocalRun(Path()), manifest.name, manifest, sha(f"c{chain}{number}"))


def commit(number: int) -> ServedCommit:
    return ServedCommit(number + 1, 10 * number + 10, sha(f"e{number + 1}"))


def chain_of(kinds: str, *, first: int = 0, encodings: str = "", chain: str = "0") -> tuple[Link, ...]:
    """Links by a letter each, f or d; ``encodings``: e for exact, q for int8."""
    return tuple(
        link(
            first + k,
            FULL if kind == "f" else DELTA,
            encoding="int8" if encodings[k : k + 1] == "q" else "float32",
            chain=chain,
        )
        for k, kind in enumerate(kinds)
    )


def at_link(number: int, chain: str = "0") -> Position:
    return Position(MODEL, number + 1, sha(f"e{number + 1}"), number, sha(f"c{chain}{number}"))


def at_commit(epochs: int, name: str = "") -> Position:
    return Position(MODEL, epochs, sha(name or f"e{epochs}"))


CASES = [
    ("fdd", {}, None, [0, 1, 2]),
    ("fdfd", {}, None, [2, 3]),
    ("fdd", {}, at_link(0), [1, 2]),
    ("fdd", {}, at_link(2), []),
    ("fdfd", {}, at_link(0), [2, 3]),
    ("fdfd", {}, at_link(2), [3]),
    ("dd", {"first": 3}, at_link(2), [3, 4]),
    ("fd", {"first": 3}, at_link(0), [3, 4]),
    ("ffd", {"first": 3}, at_link(0), [4, 5]),
    # a SavedModel as it was exported, by the epochs of its commit
    ("fdd", {}, at_commit(1), [1, 2]),
    ("fdd", {}, at_commit(2), [2]),
    ("fdd", {}, at_commit(3), []),
    ("dd", {"first": 1}, at_commit(1), [1, 2]),
    ("fdd", {}, at_commit(2, "another"), [0, 1, 2]),
    ("fdd", {"encodings": "qee"}, at_commit(2), [0, 1, 2]),
    ("fdd", {"encodings": "eqe"}, at_commit(1), [1, 2]),
    ("fdd", {"encodings": "eqe"}, at_commit(2), [0, 1, 2]),
    ("fdd", {"encodings": "eeq"}, at_commit(3), [0, 1, 2]),
    ("fqfd", {"encodings": "eqee"}, at_commit(3), [3]),
]


@pytest.mark.parametrize(("kinds", "options", "at", "expected"), CASES)
def test_links_that_follow_a_state_are_applied(kinds, options, at, expected):
    links = chain_of(kinds, **options)
    check_chain(links)
    found = links_to_apply(links, at, "target")
    assert [one.manifest.number for one in found] == expected


@pytest.mark.parametrize(
    ("links", "at", "rule"),
    [
        (chain_of("dd", first=1), None, "new state must begin with a full snapshot"),
        (chain_of("fdd"), at_link(1, chain="9"), "one of another chain"),
        (chain_of("dd", first=2), at_link(1, chain="9"), "one of another chain"),
        (chain_of("fd"), at_link(4), "newer than the state"),
        (chain_of("d", first=1), at_link(1, chain="9"), "one of another chain"),
        (chain_of("d", first=0), at_link(1), "newer than the state"),
        (chain_of("dd", first=4), at_link(1), "got a gap"),
        (chain_of("fd"), at_commit(9), "newer than the state"),
        (chain_of("dd", first=4), at_commit(2), "from the commit of the state"),
        (chain_of("fd"), Position("b" * 64, 1, sha("e1")), "have the model of the state"),
    ],
)
def test_links_that_do_not_follow_a_state_are_refused(links, at, rule):
    with pytest.raises(LinkRefused, match=rule):
        links_to_apply(links, at, "target")


@pytest.mark.parametrize(
    "links",
    [
        (*chain_of("f"), *chain_of("d", first=2)),
        (*chain_of("f"), *chain_of("d", first=1, chain="7")),
        (link(0, FULL), link(1, DELTA, previous=sha("other"))),
        (link(1, DELTA), link(0, FULL)),
    ],
)
def test_links_that_do_not_follow_each_other_are_torn(links):
    with pytest.raises(TornCheckpoint, match="must name the hash"):
        check_chain(links)


def test_a_chain_is_cut_at_a_number():
    links = chain_of("fdd", first=2)
    assert [one.manifest.number for one in links_until(links, 3)] == [2, 3]
    for number in (1, 5):
        with pytest.raises(LinkRefused, match="one of the chain"):
            links_until(links, number)
