"""Web operators over URLs, addresses, devices and documents."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import headrace as hr
from tests.support.examples import scaled
from tests.transforms.adversarial import computed, operation
from transforms.errors import InputError
from transforms.graphs.graph import RawColumn
from transforms.operators import REGISTRY
from transforms.operators.public_suffixes import list_text, rules
from transforms.types import Dense, DType

COLUMN = RawColumn(Dense(DType.STRING), "c0")
MB = 2**20

_pieces = st.sampled_from(
    ["http", "HTTPS", ":", "://", "//", "/", "?", "#", "@", "&", "=", "q", "q=", "a", "+", "%", "%4", "%41", "%2F", "%c3%a9",
     "%C3", "%ff", "%00", "%ed%a0%80", "%f4%90%80%80", "%f0%9f%98%80", "%ef%bb%bf", "%ef%bf%bf", "%ef%bf%bd", "[::1]", "[", "]", ":80", ":8x", "www.", "Example", ".com", ".",
     "co.uk", "ck", "www.ck", "kawasaki.jp", "city.kawasaki.jp", "github.io", "公司.cn", "xn--55qx5d.cn", "ÉÑ", "127.0.0.1",
     " ", "\x00", "\n", "\\", "~", "\x7f", "%71", "%26", "é"]
)  # fmt: skip
_urls = st.lists(_pieces, max_size=9).map("".join) | st.builds(
    "{}://{}{}/{}?{}".format,
    st.sampled_from(["http", "x+1.-"]),
    st.sampled_from(["", "u:p@"]),
    *[_pieces.filter(bool)] * 3,
)
_group = st.sampled_from(
    ["0", "1", "ffff", "FFFF", "00", "0db8", "12345", "g", "1.2.3.4", "255.255.255.255", "256.1.1.1", ""]
)
_addresses = (
    st.lists(_group, max_size=9).map(":".join)
    | st.ip_addresses(v=4).map(str)
    | st.ip_addresses(v=6).map(str)
    | st.ip_addresses(v=6).map(lambda address: f"[{address}]")
    | st.lists(st.sampled_from(["0", "0", "0", "1", "abcd"]), min_size=8, max_size=8).map(":".join)
    | st.tuples(st.sampled_from(["", "1:", "::ffff:", "::", "[::"]), st.sampled_from(["1.2.3.4", "01.2.3.4", "1.2.3", "1.2.3.4]"])).map("".join)
)  # fmt: skip
_devices = st.lists(
    st.sampled_from(["Samsung", "samsung", "LG", "LGE", "SM-G991B", " ", "  ", "-", "_", "/DS", " build/", "Build/x", "\t", "\n",
                     "6.1", "iPhone14,2", "É", "\u3000", "\x00", "\v", "\x1c", "google"]),
    max_size=7,
).map("".join)  # fmt: skip
_json_pieces = st.sampled_from(
    ['{"a":', '{"a": {"b": [', '"a"', '"b":', "{", "}", "[", "]", ",", ":", "1", "-0.5e+3", "01", "1.", "-", "null", "true",
     "nul", '"\\u00e9"', '"\\ud83d\\ude00"', '"\\ud83d"', '"\\udc00x"', '"\\u12"', '"\\x"', '"\n"', '"é😀\\n\\"\\/"', " ", "\t\r\n", "\u00a0",
     '"a b":{"c":', '{"\\u0061":', '"é":{"x":', '"":']
)  # fmt: skip
_values = st.recursive(
    st.sampled_from(["1", "-0.5e+3", "null", "false", '"x"', '"\\u00e9\\t"', '"\\ud800"', '""', "1 "]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[ {' , '.join(items)}]")
        | st.lists(
            st.tuples(st.sampled_from(["a", "b", "\\u0061", "a b", "c", "é", "x", "", "\\ud800"]), inner), max_size=3
        ).map(lambda members: "{" + ",".join(f'"{name}" :{value}' for name, value in members) + "}")
    ),
    max_leaves=9,
)
_documents = _values | st.lists(_json_pieces, max_size=8).map("".join)

TRIALS = {
    "url_scheme": (_urls, [{}]),
    "url_host": (_urls, [{}]),
    "url_registered_domain": (_urls, [{}]),
    "url_path_tokens": (_urls, [{}]),
    "url_query_parameter": (_urls, [{"name": "q"}, {"name": "%71"}, {"name": "a é"}]),
    "ip_prefix": (_addresses, [{}, {"v4_bits": 13, "v6_bits": 77}, {"v4_bits": 0, "v6_bits": 0}, {"v4_bits": 32, "v6_bits": 128}]),
    "device_model": (_devices, [{}]),
    "json_extract": (_documents, [{"path": path} for path in ("$", "$.a", "$.a.b[0]", "$[1]", "$['a b'].c", "$.a.a", "$[0][0]", "$['']")]),
}  # fmt: skip
thorough = settings(max_examples=scaled(60), suppress_health_check=list(HealthCheck))


def run(op: str, values: list[str | None], /, **params: Any) -> list[Any]:
    return computed(operation(op, [COLUMN], params), [pa.array(values, pa.string())], len(values)).to_pylist()


@pytest.mark.medium
@pytest.mark.parametrize("name", TRIALS)
@given(data=st.data())
@thorough
def test_kernel_and_twin_equal_reference_over_the_familys_own_texts(name: str, data: st.DataObject) -> None:
    strategy, choices = TRIALS[name]
    values = data.draw(st.lists(strategy | st.none(), max_size=8))
    params = REGISTRY[name].bind_params(data.draw(st.sampled_from(choices)))
    expected = [REGISTRY[name].evaluate([COLUMN.type], (value,), params) for value in values]
    assert run(name, values, **params) == expected
    if REGISTRY[name].twin:
        assert _by_twin(name, values, params) == expected


def _by_twin(name: str, values: list[str | None], params: dict[str, Any]) -> list[Any]:
    from transforms.twins.graph import compute
    from transforms.twins.tensors import from_arrow, to_arrow

    root = operation(name, [COLUMN], params)
    column = from_arrow(pa.array(values, pa.string()), COLUMN.type)
    return to_arrow(compute({"it": root}, {"c0": column})["it"], root.type).to_pylist()


@pytest.mark.medium
def test_twins_work_in_a_traced_graph_of_unknown_batch_size() -> None:
    import tensorflow as tf

    from transforms.twins.graph import compute
    from transforms.twins.tensors import DenseTensor

    roots = {name: operation(name, [COLUMN], params[0]) for name, (_, params) in TRIALS.items() if REGISTRY[name].twin}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def traced(values: Any) -> Any:
        columns = compute(roots, {"c0": DenseTensor(values)})
        return {key: at if isinstance(at, tf.RaggedTensor) else at.values for key, at in columns.items()}

    assert traced(tf.constant(["http://a.Example.co.uk/x%20y?q=1"]))["url_host"].numpy().tolist() == [
        b"a.example.co.uk"
    ]
    assert traced(tf.constant(["1.2.3.4", "::1"]))["ip_prefix"].numpy().tolist() == [b"1.2.3.0/24", b"::/48"]
    assert all(len(column) == 0 for column in map(_flat, traced(tf.constant([], tf.string)).values()))


def _flat(column: Any) -> Any:
    return column.to_list() if hasattr(column, "to_list") else column.numpy().tolist()


# RFC 3986, sections 1.1.2 and 5.4: its example URLs.
@pytest.mark.parametrize(
    ("url", "scheme", "host", "tokens"),
    [
        ("ftp://ftp.is.co.za/rfc/rfc1808.txt", "ftp", "ftp.is.co.za", ["rfc", "rfc1808.txt"]),
        ("ldap://[2001:db8::7]/c=GB?objectClass?one", "ldap", "[2001:db8::7]", ["c=GB"]),
        ("mailto:John.Doe@example.com", "mailto", None, ["John.Doe@example.com"]),
        ("tel:+1-816-555-1212", "tel", None, ["+1-816-555-1212"]),
        ("telnet://192.0.2.16:80/", "telnet", "192.0.2.16", []),
        ("urn:oasis:names:specification:docbook:dtd:xml:4.1.2", "urn", None, ["oasis:names:specification:docbook:dtd:xml:4.1.2"]),
        ("//g", None, "g", []),
        ("?y", None, None, []),
        ("g;x=1/./y", None, None, ["g;x=1", ".", "y"]),
        ("http://a/b/c/d;p?q", "http", "a", ["b", "c", "d;p"]),
    ],
)  # fmt: skip
def test_url_parts_of_the_rfcs_examples(url: str, scheme: str | None, host: str | None, tokens: list[str]) -> None:
    assert run("url_scheme", [url]) == [scheme]
    assert run("url_host", [url]) == [host]
    assert run("url_path_tokens", [url]) == [tokens]


# https://github.com/publicsuffix/list/blob/main/tests/test_psl.txt, dedicated to the public domain; a selection.
PUBLISHED = {
    "COM": None, "WwW.example.COM": "example.com", ".example.com": None, "example": None, "b.example.example": "example.example",
    "biz": None, "a.b.domain.biz": "domain.biz", "uk.com": None, "b.example.uk.com": "example.uk.com", "test.ac": "test.ac",
    "c.mm": None, "b.c.mm": "b.c.mm", "a.b.c.mm": "b.c.mm", "test.jp": "test.jp", "ac.jp": None, "test.ac.jp": "test.ac.jp",
    "kyoto.jp": None, "test.kyoto.jp": "test.kyoto.jp", "ide.kyoto.jp": None, "a.b.ide.kyoto.jp": "b.ide.kyoto.jp", "c.kobe.jp": None,
    "a.b.c.kobe.jp": "b.c.kobe.jp", "city.kobe.jp": "city.kobe.jp", "www.city.kobe.jp": "city.kobe.jp", "ck": None, "test.ck": None,
    "a.b.test.ck": "b.test.ck", "www.ck": "www.ck", "www.www.ck": "www.ck", "k12.ak.us": None, "www.test.k12.ak.us": "test.k12.ak.us",
    "食狮.com.cn": "食狮.com.cn", "www.食狮.公司.cn": "食狮.公司.cn", "公司.cn": None, "食狮.中国": "食狮.中国", "中国": None,
    "www.xn--85x722f.xn--55qx5d.cn": "xn--85x722f.xn--55qx5d.cn", "xn--55qx5d.cn": None, "xn--fiqs8s": None,
}  # fmt: skip


def test_registered_domains_as_the_lists_own_tests_have_them() -> None:
    assert run("url_registered_domain", list(PUBLISHED)) == list(PUBLISHED.values())
    assert run("url_registered_domain", [f"https://u@{host}:8/x" for host in PUBLISHED]) == list(PUBLISHED.values())


def test_registered_domain_of_odd_hosts() -> None:
    odd = [
        "example.com.",
        "example.com..",
        "a..com",
        "203.0.113.9",
        "a.1",
        "http://[::1]/",
        "localhost",
        "a_b.com",
        "a/b.com",
        "",
    ]
    gives = ["example.com", None, None, None, None, None, None, "a_b.com", None, None]
    assert run("url_registered_domain", odd) == gives


def test_a_wildcard_does_not_make_its_parent_a_suffix() -> None:
    assert run("url_registered_domain", ["kobe.jp", "c.kobe.jp", "b.c.kobe.jp"]) == ["kobe.jp", None, "b.c.kobe.jp"]


def test_a_newer_public_suffix_list_needs_a_new_version() -> None:
    lists = {1: "0232f4df0831911356e8ee1f4d5c3b6b12c0ed3f6bd66b0f81c8ab5d3d49e9ca"}
    version = REGISTRY["url_registered_domain"].version
    assert hashlib.sha256(list_text().encode()).hexdigest() == lists[version]
    assert all("*" not in name and name == name.lower() for name in rules())


# RFC 4291, section 2.2, and RFC 5952, sections 2 and 4.
@pytest.mark.parametrize(
    ("address", "canonical"),
    [
        ("ABCD:EF01:2345:6789:ABCD:EF01:2345:6789", "abcd:ef01:2345:6789:abcd:ef01:2345:6789"),
        ("2001:DB8:0:0:8:800:200C:417A", "2001:db8::8:800:200c:417a"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("0:0:0:0:0:0:0:0", "::"),
        ("::13.1.68.3", "::d01:4403"),
        ("2001:0db8::0001", "2001:db8::1"),
        ("2001:db8:0:1:1:1:1:1", "2001:db8:0:1:1:1:1:1"),
        ("2001:0:0:1:0:0:0:1", "2001:0:0:1::1"),
        ("2001:db8:0:0:1:0:0:1", "2001:db8::1:0:0:1"),
    ],
)
def test_ipv6_is_written_as_the_rfcs_say(address: str, canonical: str) -> None:
    assert run("ip_prefix", [address, f"[{address}]"], v6_bits=128) == [f"{canonical}/128"] * 2


def test_mapped_addresses_are_ipv4_and_no_address_is_null() -> None:
    assert run("ip_prefix", ["::FFFF:129.144.52.38", "::ffff:8190:3426"]) == ["129.144.52.0/24"] * 2
    bad = ["", "1.2.3", "1.2.3.4.5", "1.2.3.256", "1.2.3.04", "1.2.3.4/24", " 1.2.3.4", "[1.2.3.4]", "fe80::1%eth0", ":::", "1::2::3", "12345::",
           "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "1:2:3:4:5:6:7::8:9", ":1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8:", "١.2.3.4"]  # fmt: skip
    assert run("ip_prefix", bad) == [None] * len(bad)


def test_json_extract_unquotes_strings_and_keeps_other_values_as_written() -> None:
    document = '{"a": [1, -2.50E+3, "x\\u00e9\\ud83d\\ude00\\/", {"k" : [ ] }, true, null], "b c": {"é": ""}}'
    paths = {"$.a[0]": "1", "$.a[1]": "-2.50E+3", "$.a[2]": "xé😀/", "$.a[3]": '{"k" : [ ] }', "$.a[4]": "true", "$.a[5]": None,
             "$.a[6]": None, "$['b c'].é": "", "$": document, "$.a.k": None, "$[0]": None, "$.x": None}  # fmt: skip
    for path, value in paths.items():
        assert run("json_extract", [document, f" {document}\n", f"{document}]"], path=path) == [value, value, None], (
            path
        )


def test_json_extract_takes_the_last_of_equal_names() -> None:
    documents = ['{"a":{"b":1},"a":{"c":2}}', '{"a":1,"\\u0061":2}', '{"a":{"b":1},"a":3}', '{"a":{"b":1,"b":null}}']
    assert run("json_extract", documents, path="$.a.b") == [None] * 4
    assert run("json_extract", documents, path="$.a") == ['{"c":2}', "2", "3", '{"b":1,"b":null}']


@given(document=_documents | st.text('[]{}",:\\\\ue0019.-+ tn', max_size=12))
@thorough
def test_json_is_accepted_and_read_as_pythons_parser_does(document: str) -> None:
    [whole], [item] = run("json_extract", [document], path="$"), run("json_extract", [document], path="$.a")
    try:
        value = json.loads(document, parse_constant=lambda name: pytest.fail("not drawn"))
    except json.JSONDecodeError:
        assert whole is None and item is None  # noqa: PT018 - one event, one statement
        return
    member = value.get("a") if isinstance(value, dict) else None
    for text, meant in ((whole, value), (item, member)):
        if isinstance(meant, str) and not _is_text(meant):
            assert text is None
        else:
            assert text == meant if isinstance(meant, str) or text is None else json.loads(text) == meant


def _is_text(value: str) -> bool:
    return not any("\ud800" <= sign <= "\udfff" for sign in value)


_WORD = st.text("abcÉé%+ &=/?#:@\n漢😀", max_size=6)


@given(
    host=st.from_regex(r"[A-Za-z0-9]{1,5}(\.[A-Za-z]{2,4}){1,2}", fullmatch=True),
    port=st.sampled_from(["", ":", ":8080"]),
    segments=st.lists(_WORD.filter(bool), max_size=4),
    query=st.lists(st.tuples(st.sampled_from(["q", "né", "a b"]), _WORD), max_size=4),
)
@thorough
def test_urls_made_by_urllib_are_taken_apart_again(
    host: str, port: str, segments: list[str], query: list[tuple[str, str]]
) -> None:
    path = "/".join(quote(segment, safe="") for segment in segments)
    url = f"HTTPS://ann:pw@{host}{port}/{path}?{urlencode(query)}#part/?q=no"
    assert run("url_scheme", [url]) == [urlsplit(url).scheme] == ["https"]
    assert run("url_host", [url]) == [urlsplit(url).hostname] == [host.lower()]
    assert run("url_path_tokens", [url]) == [segments]
    first = dict(reversed(parse_qsl(urlsplit(url).query, keep_blank_values=True)))
    for name in ("q", "né", "a b"):
        assert run("url_query_parameter", [url], name=name) == [first.get(name)]


def test_json_extract_refuses_what_the_rfc_does_not_have() -> None:
    bad = ["", "NaN", "[1,]", '{"a":1,}', "{'a':1}", "[01]", "[1.]", "[.5]", "[+1]", '["\t"]', '["\\x"]', '["\\u12g4"]', "[1]x", "[1", "\ufeff1",
           '{"a"}', "{1:2}", "[1 2]", "tru", "nulll", '"', "[" * 300 + "]" * 300, "[}", "-"]  # fmt: skip
    assert run("json_extract", bad, path="$") == [None] * len(bad)
    assert run("json_extract", ["[" * 256 + "]" * 256], path="$[0][0]") == ["[" * 254 + "]" * 254]


@pytest.mark.parametrize(
    "path", ["", "a", "$.", "$a", "$.a-b", "$[-1]", "$[01]", "$[a]", "$['a", "$..a", "$[*]", "$[2147483648]", "$.1"]
)
def test_json_path_must_be_one(path: str) -> None:
    with pytest.raises(InputError, match="json_extract"):
        hr.text("x").json_extract(path)


def test_device_spellings_meet() -> None:
    for spellings, model in (
        (
            [
                "Samsung SM-G991B/DS",
                "SAMSUNG-SM-G991B",
                "samsung_sm-g991b ",
                "SM-G991B",
                "samsung samsung  SM-G991B Build/RP1A",
            ],
            "sm-g991b",
        ),
        (["iPhone14,2", "Apple iPhone14,2", "IPHONE14,2"], "iphone14,2"),
        (["moto g(7) power", "Motorola moto g(7) power"], "moto g(7) power"),
        (["OnePlus 6", "oneplus  6"], "oneplus 6"),
        (["", " ", "/", " build/x", "_"], None),
    ):
        assert run("device_model", spellings) == [model] * len(spellings)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("op", "values"),
    [
        ("url_scheme", ["a" * MB + ":", "http://x"]),
        ("url_host", ["http://" + "a." * (MB // 2) + "com", "http://u" + "@" * MB + "x"]),
        ("url_registered_domain", ["http://" + "a." * (MB // 2) + "com", "é." * (MB // 4) + "co.uk"]),
        ("url_path_tokens", ["http://a/" + "b%20/" * (MB // 5)]),
        ("url_query_parameter", ["?" + "a=%41&" * (MB // 6) + "q=%41+"]),
        ("ip_prefix", ["1" * MB, ":" * MB, "1:" * (MB // 2)]),
        ("device_model", ["Samsung " * 100_000 + "x", " " * MB + "x/" + "y" * MB]),
    ],
)
def test_twins_equal_kernels_over_a_megabyte(op: str, values: list[str | None]) -> None:
    params = REGISTRY[op].bind_params(TRIALS[op][1][0])
    assert _by_twin(op, values, params) == run(op, values, **params)


def test_texts_of_a_megabyte_and_a_hundred_thousand_items() -> None:
    dots, slashes = "http://" + "a." * (MB // 2) + "com", "http://a/" + "b/" * (MB // 2)
    assert run("url_host", [dots]) == [dots[7:]]
    assert run("url_registered_domain", [dots]) == ["a.com"]
    assert run("url_path_tokens", [slashes, slashes]) == [["b"] * (MB // 2)] * 2
    assert run("url_query_parameter", ["?" + "a=%41&" * (MB // 6) + "q=%41+"], name="q") == ["A "]
    assert run("url_path_tokens", ["%c3%a9" * (MB // 6) + "%ff"]) == [["%c3%a9" * (MB // 6) + "%ff"]]
    assert run("ip_prefix", ["1" * MB, ":" * MB, "1:" * MB]) == [None] * 3
    assert run("device_model", ["Samsung " * 100_000 + "x"]) == ["x"]
    assert run("json_extract", ["[" + "7," * 100_000 + '"last"]'], path="$[100000]") == ["last"]
    assert run("json_extract", ['"' + "\\u0061" * (MB // 6) + '"'], path="$") == ["a" * (MB // 6)]
    hosts = hr.ragged("urls", "string").url_host()
    column = pa.array([[f"http://h{i}/" for i in range(100_000)] + ["none"]])
    from transforms.execution.plan import compile_plan

    [got] = compile_plan({"it": hosts.node}).run(pa.table({"urls": column})).columns["it"].to_pylist()
    assert got == [f"h{i}" for i in range(100_000)]
