"""The vendored Public Suffix List: the names under which domains are registered.

``public_suffix_list.dat`` is the list of publicsuffix.org as of the version written in its head, unchanged, under the
Mozilla Public License 2.0 that its head names. Both sections count: domains of registries (ICANN) and of companies that
give out names beneath theirs (private), so that ``ann.github.io`` and ``ben.github.io`` are two domains. Rules match
names written as UTF-8 and as punycode. As the list's published algorithm has it, ``*.kobe.jp`` says nothing of
``kobe.jp`` itself, which is registered under ``jp``; some browsers take it for a suffix too.

A newer list changes outputs: raise the version of the operators that read it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from enum import IntFlag
from functools import cache
from pathlib import Path


class Rule(IntFlag):
    """The rules of the list. A name can have several."""

    SUFFIX = 1  # the name itself is a public suffix
    WILDCARD = 2  # so is every name one label below it
    EXCEPTION = 4  # except this one, which is under a wildcard
    ABOVE_RULE = 8  # a name further down has a rule; only in rules_by_ending


@cache
def list_text() -> str:
    """The list as it is published."""
    return Path(__file__).with_name("public_suffix_list.dat").read_text(encoding="utf-8")


@cache
def rules() -> dict[str, Rule]:
    """The rules by name, in lower case and in every mixture of UTF-8 and punycode labels."""
    found: dict[str, Rule] = {}
    for line in list_text().splitlines():
        rule = line.strip()
        if rule and not rule.startswith("//"):
            kind = Rule.WILDCARD if rule.startswith("*.") else Rule.EXCEPTION if rule.startswith("!") else Rule.SUFFIX
            for name in _spellings(re.sub(r"^(\*\.|!)", "", rule)):
                found[name] = found.get(name, Rule(0)) | kind
    return found


@cache
def rules_by_ending() -> dict[str, Rule]:
    """The rules and all endings of their names, so that a lookup label by label ends early."""
    found = dict(rules())
    for name in rules():
        while "." in name:
            name = name.partition(".")[2]
            found[name] = found.get(name, Rule(0)) | Rule.ABOVE_RULE
    return found


@cache
def labels_max() -> int:
    """The most labels of a name that has a rule."""
    return max(name.count(".") for name in rules()) + 1


def registered_domain(host: str) -> str | None:
    """The public suffix of a host and the label before it, without a last dot.

    A name beneath no rule is under a suffix of one label. None for an address (in brackets, or with digits alone as its
    last label), for a public suffix itself, and for a host with an empty label.
    """
    labels = host.removesuffix(".").split(".")
    if "" in labels or host.startswith("[") or re.fullmatch("[0-9]+", labels[-1]):
        return None
    wanted = _suffix_labels(labels) + 1
    return ".".join(labels[-wanted:]) if len(labels) >= wanted else None


def _suffix_labels(labels: list[str]) -> int:
    """The number of labels of the public suffix: by an exception, otherwise by the longest rule."""
    longest = 1
    for count in range(1, min(len(labels), labels_max()) + 1):
        rule = rules().get(".".join(labels[-count:]), Rule(0))
        if Rule.EXCEPTION in rule:
            return count - 1
        if Rule.SUFFIX in rule:
            longest = count
        if Rule.WILDCARD in rule and len(labels) > count:
            longest = count + 1
    return longest


def _spellings(name: str) -> Iterator[str]:
    for labels in itertools.product(*(_label_spellings(label) for label in name.split("."))):
        yield ".".join(labels)


def _label_spellings(label: str) -> tuple[str, ...]:
    return (label,) if label.isascii() else (label, "xn--" + label.encode("punycode").decode())
