"""Pages over HTTP: what each shows, who may see it, and that nothing of a hostile neighbour gets through."""

from __future__ import annotations

import dataclasses
import html
import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from html import escape, unescape
from pathlib import Path
from urllib.parse import quote, urlsplit

import pyarrow as pa
import pytest

import transforms.expressions.expression as hr
from headrace.terminal.output import document
from headrace.views import graphs, tables
from headrace.web.config import WebConfig
from headrace.web.guard import HEADERS, MOST_BODY_BYTES
from headrace.web.pages import graphs as graph_pages
from tests.headrace.web.pages import Browser, served
from tests.support.processes import PATIENCE_SECS
from tests.warehouse.scenes import (
    computed_warehouse,
    evict_component,
    write_partition,
)
from transforms.errors import InputError
from transforms.expressions.model import Model
from warehouse import Warehouse, read_solution, register_table, submit_model
from warehouse.eviction.history import list_evictions

HOSTILE = '<script>alert("x")</script>\u202e\u200b'
PAGES = ("/", "/graphs", "/models", "/models/ctr", "/tables", "/tables/log", "/tables/log/columns/query", "/evict", "/evict?column=query",
         "/evictions", "/quarantine")  # fmt: skip


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """A table, a model with ready memos, and another over a column whose name tries to be markup."""
    folder = tmp_path_factory.mktemp("pages")
    with computed_warehouse(folder) as opened:
        write_partition(folder / "odd", 0, pa.table({HOSTILE: ["a"], "y": [True]}))
        register_table(opened, "odd", str(folder / "odd"))
        odd = Model("odd", client="odd", label="y", table="odd")  # names of models and clients have letters alone
        odd.input("it", hr.text(HOSTILE).lower().hash_buckets(10))
        submit_model(opened, odd)
        yield opened


@pytest.fixture(scope="module")
def pages(warehouse: Warehouse) -> Iterator[Browser]:
    with served(warehouse, allow_changes=True) as browser:
        yield browser


def test_every_page_is_whole_and_has_its_headers(browser: Browser, warehouse: Warehouse) -> None:
    fingerprint = read_solution(warehouse, "ctr").inputs[0].fingerprint
    for path in (*PAGES, f"/graphs/{fingerprint}"):
        answer = browser.get(path)
        assert (answer.status, answer.text.count("<h1>"), answer.text.rstrip()[-7:]) == (200, 1, "</html>"), path
        assert answer.headers.items() >= HEADERS.items(), path
        assert "style=" not in answer.text
        assert "<script" not in answer.text
    drawing = browser.get(f"/graphs/{fingerprint}/drawing.svg")
    assert (drawing.headers["content-type"], drawing.text[:4]) == ("image/svg+xml", "<svg")
    assert "sandbox" in drawing.headers["content-security-policy"]
    for path, status in (("/static/style.css", 200), ("/static/../app.py", 404), ("/static/%2e%2e/app.py", 404), ("/graphs/zz", 404), ("/no", 404),
                         ("/models/ctrr", 404), ("/graphs?sort=odd", 400), ("/graphs?pattern=(", 400), ("/graphs?after=odd", 400), ("/evictions/99", 404),
                         ("/evict?budget=lots", 400), ("/graphs?min_hits=nan", 400), ("/graphs?state=odd", 400)):  # fmt: skip
        answer = browser.get(path)
        assert (answer.status, answer.headers.items() >= HEADERS.items()) == (status, True), (path, answer.status)


def test_an_error_says_what_where_and_what_is_allowed(browser: Browser) -> None:
    answer = browser.get("/graphs?column=quary")
    assert answer.status == 400
    for said in ("no table has this column", "quary", "query"):
        assert said in answer.text


def test_a_page_that_reads_for_too_long_says_what_to_do(warehouse: Warehouse) -> None:
    with Warehouse.open(warehouse.config, read_secs=60.0) as limited:
        limit = limited.catalog._read_limit
        assert limit is not None
        limited.catalog._read_limit = dataclasses.replace(limit, secs=1e-9)
        with served(limited) as stranger:
            for path in ("/graphs", "/evict?column=query", "/tables/log"):
                answer = stranger.enter().get(path)
                assert answer.status == 503, path
                assert "took longer than" in answer.text
                assert "more conditions" in answer.text


def test_pages_of_components_follow_each_other(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = json.loads(browser.get("/graphs?sort=size&format=json").text)["graphs"]
    assert len(whole) > 3
    monkeypatch.setattr(graph_pages, "PAGE_ROWS", 2)
    found, path = [], "/graphs?sort=size"
    while path:
        answer = browser.get(path)
        assert ("First page" in answer.text) == bool(found)
        found += re.findall(r'<th scope="row">.*?href="/graphs/([0-9a-f]+)"', answer.text)
        following = re.search(r'rel="next" href="([^"]+)"', answer.text)
        path = html.unescape(following[1]) if following else ""
    assert [one[:12] for one in found] == [one["fingerprint"][:12] for one in whole]
    assert "No component comes after this place" in browser.get("/graphs?after=0~00").text


def test_json_has_the_fields_of_the_commands(browser: Browser, warehouse: Warehouse) -> None:
    assert json.loads(browser.get("/tables/log?format=json").text) == json.loads(
        json.dumps(document(tables.shown(warehouse, "log", 0)), default=str)
    )
    found = json.loads(browser.get("/graphs?column=query&sort=oldest&format=json").text)
    from warehouse import ComponentQuery

    same = graphs.page(warehouse, ComponentQuery(column="query"), sort="oldest", count=True)
    assert found == json.loads(json.dumps(document(same)))
    assert browser.get("/tables/log/columns/query?format=csv").text.startswith(
        "kind,path,size_bytes\nfiles of the table,"
    )


def test_names_that_try_to_be_markup_are_text(browser: Browser) -> None:
    for path in ("/graphs", "/models", "/models/odd", "/tables/odd", f"/tables/odd/columns/{quote(HOSTILE, safe='')}", "/",
                 f"/graphs?column={quote(HOSTILE, safe='')}", f"/graphs?model={quote('<b>' * 3000)}", f"/evict?pattern={quote(HOSTILE)}"):  # fmt: skip
        answer = browser.get(path)
        assert answer.status in (200, 400, 404, 414), (path, answer.status)
        for bad in ("<script", "<b>", "\u202e", "\u200b"):
            assert bad not in answer.text, path
    assert "&lt;script&gt;alert" in browser.get("/tables/odd").text
    assert "\\u202e" in browser.get("/tables/odd").text


def test_two_servers_of_a_machine_keep_their_own_sessions(warehouse: Warehouse, browser: Browser) -> None:
    """A browser sends the cookies of a machine to all of its ports."""
    with served(warehouse) as second:
        other = second.enter()
        both = f"{browser.cookie}; {other.cookie}"
        assert [one.get("/models", Cookie=both).status for one in (browser, other)] == [200, 200]
        assert other.get("/models", Cookie=browser.cookie).status == 403


def test_strangers_are_refused(pages: Browser, browser: Browser) -> None:
    host = urlsplit(pages.address).netloc
    stranger = Browser(pages.address)
    assert stranger.get("/").status == 403
    assert stranger.get("/enter?token=wrong").status == 403
    assert stranger.post("/enter", {"token": "wrong"}).status == 403
    assert 'name="token"' in stranger.get("/enter").text
    name = browser.cookie.partition("=")[0]
    for cookie in (f"{name}=guessed", f"{name}=", f'{name}="', f"a=b; {name}=ünï"):
        assert stranger.get("/graphs", Cookie=cookie.encode().decode("latin-1")).status == 403
    for name in (
        "evil.example",
        f"evil.example:{host.partition(':')[2]}",
        "127.0.0.1",
        f"{host}.evil.example",
        "localhost:1",
    ):
        assert browser.get("/", Host=name).status in (400, 421), "an address that another site lets point here"
    assert browser.get("/", Host=host.replace("127.0.0.1", "localhost")).status == 200
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"):
        assert browser.send(method, "/").status == 405
    assert browser.get(f"/graphs?column={'a' * 20_000}").status == 414
    assert browser.get("/", Upgrade="websocket", Connection="Upgrade").status in (200, 400, 426)


def test_a_token_of_a_file_is_typed_or_part_of_the_address(warehouse: Warehouse) -> None:
    token = "a token of a file"
    with served(warehouse, token=token) as browser:
        assert token not in browser.address
        typed = browser.post("/enter", {"token": token})
        assert (typed.status, typed.headers["location"]) == (303, "/")
        browser.cookie = typed.headers["set-cookie"].partition(";")[0]
        assert browser.get("/tables").status == 200
        assert browser.get(f"/enter?token={quote(token)}").status == 303
        assert "HttpOnly" in typed.headers["set-cookie"]
        assert "SameSite=strict" in typed.headers["set-cookie"]


def test_a_form_of_another_site_changes_nothing(browser: Browser, warehouse: Warehouse) -> None:
    before = len(list_evictions(warehouse))
    page = browser.get("/evict?column=query")
    form = {"form_token": page.form_token, "preview": page.preview, "memos": "6", "why": "w"}
    assert browser.post("/evict", form, Origin="http://evil.example").status == 403
    assert browser.post("/evict", form, Origin="null").status == 403
    assert browser.post("/evict", form, Origin="").status == 403
    assert browser.post("/evict", form, Sec_Fetch_Site="cross-site").status == 403
    assert browser.post("/evict", form, Sec_Fetch_Site="same-site").status == 403
    assert browser.post("/evict", {**form, "form_token": "guessed"}).status == 403
    assert browser.post("/evict", {**form, "form_token": ""}).status == 403
    other = Browser(browser.address).enter()
    assert other.post("/evict", form).status == 403, "another session's"
    assert other.post("/evict", {**form, "form_token": other.get("/evict?column=query").form_token}).status == 400
    assert browser.get("/evict?" + "&".join(f"{name}={value}" for name, value in form.items())).status == 200, (
        "a GET changes nothing"
    )
    assert browser.post("/evict", {**form, "why": "x" * MOST_BODY_BYTES}).status == 413
    assert len(list_evictions(warehouse)) == before


def test_a_preview_is_carried_out_once_and_undone(browser: Browser, warehouse: Warehouse) -> None:
    page = browser.get("/evict?column=query")
    assert "6 memos of 2 components" in page.text
    form = {"form_token": page.form_token, "preview": page.preview, "memos": "5", "why": "<i>too large</i>"}
    assert browser.post("/evict", form).status == 400
    assert browser.post("/evict", {**form, "memos": "6"}).status == 400, "a preview with a wrong number is spent"
    assert read_solution(warehouse, "ctr").count("load") == 6
    page = browser.get("/evict?column=query")
    form = {**form, "preview": page.preview, "memos": "6"}
    done = browser.post("/evict", form)
    assert done.status == 303
    past = list_evictions(warehouse)[0]
    assert (done.headers["location"], past.memos, past.why) == (f"/evictions/{past.number}", 6, "<i>too large</i>")
    assert read_solution(warehouse, "ctr").count("load") == 0
    assert browser.post("/evict", form).status == 400
    shown = browser.get(done.headers["location"])
    assert "&lt;i&gt;too large" in shown.text
    assert "6 memos of 2 components can be restored" in shown.text
    assert browser.post(f"{done.headers['location']}/restore", {"form_token": "no"}).status == 403
    assert browser.post(f"{done.headers['location']}/restore", {"form_token": shown.form_token}).status == 303
    assert read_solution(warehouse, "ctr").count("load") == 6
    assert "Nothing is left to restore" in browser.get(done.headers["location"]).text
    assert "restored" in browser.get("/evictions").text


def test_of_two_people_who_evict_at_once_one_is_shown_a_changed_plan(browser: Browser, warehouse: Warehouse) -> None:
    people = [Browser(browser.address).enter() for _ in range(4)]
    forms = []
    for one in people:
        page = one.get("/evict?column=query")
        forms.append({"form_token": page.form_token, "preview": page.preview, "memos": "6", "why": "at once"})
    answers: list[int] = []
    threads = [
        threading.Thread(target=lambda k=k: answers.append(people[k].post("/evict", forms[k]).status)) for k in range(4)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(answers) == [303, 409, 409, 409]
    newest = list_evictions(warehouse)[0]
    page = browser.get(f"/evictions/{newest.number}")
    assert browser.post(f"/evictions/{newest.number}/restore", {"form_token": page.form_token}).status == 303


def test_pages_that_only_show_change_nothing(warehouse: Warehouse) -> None:
    with served(warehouse) as address:
        browser = address.enter()
        page = browser.get("/evict?column=query")
        assert "--allow-changes" in page.text
        assert 'name="preview"' not in page.text
        number = evict_component(warehouse, read_solution(warehouse, "ctr").inputs[0].fingerprint).eviction
        assert "headrace graphs restore" in browser.get(f"/evictions/{number}").text
        session = browser.post(f"/evictions/{number}/restore", {"form_token": ""})
        assert session.status == 403
    with served(warehouse, allow_changes=True) as address:
        browser = address.enter()
        token = browser.get(f"/evictions/{number}").form_token
        assert browser.post(f"/evictions/{number}/restore", {"form_token": token}).status == 303


def test_behind_an_identity_proxy_the_header_names_the_user(warehouse: Warehouse) -> None:
    with served(warehouse, allow_changes=True, user_header="X-User", allowed_hosts=("headrace.example",)) as address:
        assert address.get("/").status == 403
        assert address.get("/enter?token=x").status == 403
        ann = Browser(address.address, headers={"X-User": "ann", "Host": "headrace.example"})
        first = ann.get("/evict?column=query")
        ann.cookie = first.headers["set-cookie"].partition(";")[0]
        page = ann.get("/evict?column=query")
        form = {"form_token": page.form_token, "preview": page.preview, "memos": "6", "why": "by ann"}
        bob = Browser(address.address, cookie=ann.cookie, headers={"X-User": "bob", "Host": "headrace.example"})
        assert bob.post("/evict", form, Origin="https://headrace.example").status == 403, "another user with her cookie"
        assert ann.post("/evict", form, Origin="https://headrace.example").status == 303
        past = list_evictions(warehouse)[0]
        assert past.who == "ann"
        page = ann.get(f"/evictions/{past.number}")
        assert (
            ann.post(
                f"/evictions/{past.number}/restore", {"form_token": page.form_token}, Origin="https://headrace.example"
            ).status
            == 303
        )


def test_a_body_that_does_not_end_is_cut(browser: Browser) -> None:
    parts = urlsplit(browser.address)
    with socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE_SECS) as connection:
        head = (
            f"POST /evict HTTP/1.1\r\nHost: {parts.netloc}\r\nCookie: {browser.cookie}\r\nOrigin: {browser.origin}\r\n"
        )
        head += "Content-Type: application/x-www-form-urlencoded\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head.encode())
        with suppress(OSError):
            for _ in range(256):
                connection.sendall(b"4000\r\n" + b"a" * 0x4000 + b"\r\n")
        assert connection.recv(64).startswith(b"HTTP/1.1 413 ")
    assert browser.get("/").status == 200


def test_many_connections_that_say_nothing_leave_pages_for_others(browser: Browser) -> None:
    parts = urlsplit(browser.address)
    idle = [socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE_SECS) for _ in range(150)]
    try:
        assert browser.get("/tables").status == 200
    finally:
        for one in idle:
            one.close()


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"host": "0.0.0.0"}, "must have a token or an identity proxy"),
        ({"host": "10.1.2.3"}, "must have a token or an identity proxy"),
        ({"host": "example.com"}, "must have a token or an identity proxy"),
        ({"port": 65536}, "the port must be"),
        ({"token": "short"}, "the token must be"),
        ({"token": "ü" * 20}, "the token must be"),
        ({"user_header": "a b"}, "the header must be"),
        ({"allowed_hosts": ("a/b",)}, "an allowed host must be"),
    ],
)
def test_a_configuration_that_is_refused(given: dict[str, object], rule: str) -> None:
    with pytest.raises(InputError) as caught:
        WebConfig(home="h", **given)  # type: ignore[arg-type]
    assert rule in caught.value.what


def test_addresses_that_only_this_machine_reaches() -> None:
    for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost"):
        assert WebConfig(home="h", host=host).is_local
    assert not WebConfig(home="h", host="0.0.0.0", token="t" * 16).is_local
    assert "localhost:80" in WebConfig(home="h").hosts(80)
    assert "localhost" in WebConfig(home="h").hosts(80)
    assert "localhost" not in WebConfig(home="h").hosts(81)


def test_the_command_says_where_the_pages_are(tmp_path: Path) -> None:
    from headrace.cli.main import run

    token = tmp_path / "token"
    token.write_text("")
    assert run(["ui", "--home", str(tmp_path), "--token-file", str(token)]) == 2
    assert run(["ui", "--home", str(tmp_path), "--host", "0.0.0.0"]) == 2
    assert run(["ui", "--home", str(tmp_path / "none")]) == 2


def test_what_a_component_shares_and_its_memos_by_partition(browser: Browser, warehouse: Warehouse) -> None:
    fingerprint = read_solution(warehouse, "ctr").inputs[0].fingerprint
    page = browser.get(f"/graphs/{fingerprint}")
    assert "Parts that others share" in page.text
    assert "A thick outline" in page.text
    assert 'class="operation shared"' in browser.get(f"/graphs/{fingerprint}/drawing.svg").text
    memos = browser.get(f"/graphs/{fingerprint[:12]}/memos")
    assert memos.text.count("1 ready") == 3
    drawing = browser.get(f"/graphs/{fingerprint}/memos.svg")
    assert drawing.headers["content-type"] == "image/svg+xml"
    assert "log, date=2026-01-01/hour=00: 1 ready" in drawing.text
    assert browser.get("/graphs/0123456789/memos").status == 404
    found = json.loads(browser.get(f"/graphs/{fingerprint}/memos?format=json").text)
    assert [one["states"] for one in found["partitions"]] == [{"READY": 1}] * 3


def test_hits_and_misses_of_a_model_with_what_is_nearest(browser: Browser, warehouse: Warehouse) -> None:
    ready = browser.get("/models/ctr/memos")
    assert "0 misses" in ready.text
    assert "memoized" in ready.text
    near = Model("near", client="search", label="clicked", table="log")
    near.input("words", hr.text("query").unigrams().hash_buckets(101))
    submit_model(warehouse, near)
    page = browser.get("/models/near/memos")
    assert "Nearest known components" in page.text
    assert "0 hits, 3 misses" in page.text
    assert browser.get("/models/near/memos.svg").text.count('class="full"') == 3 + 1
    assert "hour=02: 0 hits, 1 misses" in browser.get("/models/near/memos.svg?version=1").text
    assert browser.get("/models/none/memos").status == 404
    assert browser.get("/models/near/memos?version=x").status == 400


def test_values_of_a_component_with_hostile_texts(browser: Browser, warehouse: Warehouse) -> None:
    fingerprint = read_solution(warehouse, "ctr").inputs[0].fingerprint
    page = browser.get(f"/graphs/{fingerprint}/values")
    assert "Most frequent" in page.text
    assert "<meter" in page.text
    found = json.loads(browser.get(f"/graphs/{fingerprint}/values?format=json").text)
    assert found == json.loads(json.dumps(document(graphs.values(warehouse, fingerprint))))
    assert found["rows"] == 20
    waiting = read_solution(warehouse, "odd").inputs[0].fingerprint
    assert "no ready memo" in browser.get(f"/graphs/{waiting}/values").text
    assert browser.get("/graphs/0000000000/values").status == 404


def test_two_versions_of_a_model(browser: Browser, warehouse: Warehouse) -> None:
    query = hr.text("query")
    for buckets, priority, name in ((11, 1, "gone"), (12, 2, "added")):
        made = Model("versions", client="search", priority=priority, label="clicked", table="log")
        made.input("words", query.unigrams().hash_buckets(buckets))
        made.input("price", hr.float32("price"))
        made.input(name, query.length())
        submit_model(warehouse, made)
    page = browser.get("/models/versions/diff")
    assert "1 changed input, 1 new, 1 gone, 1 the same" in page.text
    assert "priority: 1 -&gt; 2" in page.text
    assert "11" in page.text.partition("<tbody>")[2]
    assert 'href="/models/versions/diff?to=2"' in browser.get("/models/versions").text
    found = json.loads(browser.get("/models/versions/diff?from=2&to=2&format=json").text)
    assert {one["state"] for one in found["inputs"]} == {"same"}
    assert browser.get("/models/versions/diff?to=1").status == 400
    assert browser.get("/models/versions/diff?from=9").status == 404
    assert browser.get("/models/versions/diff?from=x").status == 400


def test_a_search_is_narrowed_by_what_its_components_have(browser: Browser) -> None:
    page = browser.get("/graphs?column=query")
    narrow = page.text.partition("<details")[2].partition("</details>")[0]
    places = [unescape(one) for one in re.findall(r'href="([^"]*)"', narrow)]
    assert "/graphs?column=query&operator=intersect&sort=newest" in places
    for place in places:
        answer = browser.get(place)
        assert answer.status == 200
        count = re.search(rf'href="{re.escape(escape(place))}">[^<]*</a> ([0-9,]+)', narrow)
        assert count, place
        assert f"{count[1]} component" in answer.text.partition('role="status">')[2][:40]
