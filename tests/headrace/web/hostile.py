"""Hostile texts, a home that is full of them, and what a page must not hold of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa

import transforms.expressions.expression as hr
from tests.warehouse.scenes import (
    computed_warehouse,
    evict_component,
    model,
    write_partition,
)
from transforms.expressions.model import Model
from warehouse import (
    Failure,
    Warehouse,
    fail_tasks,
    lease_tasks,
    read_solution,
    register_table,
    submit_model,
)
from warehouse.eviction.restore import restore_evicted
from warehouse.queue.failures import encoded_sample

MARKUP = "<hxtag hxattr=1>\" hxattr=2 ' hxattr=3 `--></title></textarea></script><hxtag onload=hx(1)>&lt;"
HIDDEN = "\u202eright to left\u2066\u200bwithout width\x1b[31m"
LONG = "L" * 10_000
#: What templates of several engines would compute: 3196943.
COMPUTED = "{{1787*1789}}${1787*1789}<%= 1787*1789 %>#{1787*1789}"
PAYLOADS = (MARKUP, HIDDEN, LONG, COMPUTED, "javascript:hx(1)", "//hx.example/", "a\r\nX-Hx: 1\r\n\r\n<hxtag>", "\ud7ff\U0010ffff\ufeff",
            "../../../etc/passwd", "%00", "%s%n{0}\\", "1e999", "9" * 100, "9" * 400 + "d", "9" * 18 + "d", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "1e18", "-1", "';--")  # fmt: skip

_ADDRESSES = {"href", "src", "action", "formaction", "data"}


@contextmanager
def hostile_home(folder: Path, url: str = "") -> Iterator[Warehouse]:
    """A warehouse with ready memos and hostile texts wherever users choose them: columns, values, errors and their samples, reasons and users."""
    with computed_warehouse(folder, model(inputs=5), catalog_url=url, retry_backoff_secs=0.0) as opened:
        longest = LONG[:255] if url else LONG  # PostgreSQL refuses longer names with an error of Headrace
        names = (MARKUP, HIDDEN, longest, COMPUTED, "javascript:hx(1)", "a?b#c%2f/d e")
        write_partition(folder / "odd", 0, pa.table({**{name: [MARKUP] for name in names}, "y": [True]}))
        register_table(opened, "odd", str(folder / "odd"))
        odd = Model(
            "odd", client="odd", label="y", table="odd"
        )  # names of tables, models and clients have letters alone
        for k, name in enumerate(names):
            odd.input(f"it{k}", hr.text(name).lower().hash_buckets(10))
        submit_model(opened, odd)
        sample = encoded_sample(pa.table({MARKUP: [MARKUP, HIDDEN]}))
        for _ in range(3):
            for task in lease_tasks(opened, f"worker {MARKUP}"):
                fail_tasks(opened, [(task, Failure("raised", f"ValueError: {MARKUP}{HIDDEN}", "lower", MARKUP, (1, 2), sample))],
                           worker=f"worker {MARKUP}")  # fmt: skip
        fingerprint = read_solution(opened, "ctr").inputs[0].fingerprint
        done = evict_component(opened, fingerprint, why=MARKUP + HIDDEN)
        restore_evicted(opened, done.eviction, who=MARKUP)
        evict_component(opened, fingerprint, why=LONG[:400])
        for name in ("<hxtag hxattr=1>", HIDDEN[:20], LONG[:200]):  # runs that cannot be read
            (folder / "home" / "runs" / name / "checkpoints").mkdir(parents=True)
            (folder / "home" / "runs" / name / "checkpoints" / "1").write_text(MARKUP)
        yield opened


class _Parts(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if "hx" in tag or tag in ("script", "iframe", "object", "embed", "base"):
            self.wrong.append(f"the element {tag}")
        for name, value in attrs:
            if "hx" in name or name.startswith("on") or name in ("style", "srcdoc"):
                self.wrong.append(f"the attribute {name} of {tag}")
            if name in _ADDRESSES and not re.match(r"/(?!/)|[#?]", value or ""):
                self.wrong.append(f"the address {value!r:.80} of {tag}")

    handle_startendtag = handle_starttag


def hostile_parts(kind: str, text: str) -> list[str]:
    """What a page, a picture or a document holds that it must not; ``kind``: its content type."""
    wrong = [f"the character {ord(one):#x}" for one in "\u202e\u2066\u200b\ufeff\x1b\0" if one in text]
    if "3196943" in text:
        wrong.append("a computed template")
    if kind.startswith(("text/html", "image/svg")):
        parts = _Parts()
        if kind.startswith("image/svg"):
            text = text.replace('xmlns="http://www.w3.org/2000/svg"', "")
        parts.feed(text)
        wrong += parts.wrong
    elif not kind.startswith(("application/json", "text/csv", "text/plain", "text/css")):
        wrong.append(f"the type {kind}")
    return wrong
