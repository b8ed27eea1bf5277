"""Parameters of the operators of transforms/operators/web.py."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

PARAMS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "url_query_parameter": st.sampled_from(["q", "ab", "né", "a b", "%71", "q&"]).map(lambda name: {"name": name}),
    "ip_prefix": st.fixed_dictionaries({"v4_bits": st.integers(0, 32), "v6_bits": st.integers(0, 128)}),
    "json_extract": st.sampled_from(
        ["$", "$.a", "$.a.b[0]", "$[1]", "$['a b'].c", '$.é["x"]', "$.a.a", "$[0][0]", "$[2147483647]", "$['']"]
    ).map(lambda path: {"path": path}),
}

GOLDEN_PARAMS: dict[str, list[dict[str, Any]]] = {
    "url_query_parameter": [{"name": "q"}],
    "ip_prefix": [{}, {"v4_bits": 32, "v6_bits": 64}],
    "json_extract": [{"path": "$"}, {"path": "$.a[0]"}],
}

_ADDRESSES: list[str | None] = [
    "https://Shop.Example.co.uk:8443/a%20b//c/?q=red%2Bshoes&x=1#top", None, "http://user:pw@[2001:DB8::1]/p?q=", "ftp://host/%FF/x",
    "//cdn.example.com/lib", "mailto:a@b.c", "https://\u4f8b\u3048.jp/\u691c\u7d22?q=\u9774", "www.city.kobe.jp", "example.com./a?y&q=1",
    "https://a.b.kobe.jp/", "HTTP://EXAMPLE.GITHUB.IO", "not a url",
]  # fmt: skip
#: Texts to record golden outputs on, for operators that make nothing of ordinary ones.
GOLDEN_TEXTS: dict[str, list[str | None]] = {
    **dict.fromkeys(
        ("url_scheme", "url_host", "url_registered_domain", "url_path_tokens", "url_query_parameter"), _ADDRESSES
    ),
    "ip_prefix": [
        "203.0.113.77", None, "2001:db8:0:1:ffff::5", "::ffff:203.0.113.77", "256.1.1.1", "01.2.3.4", "::", "fe80::1%eth0",
        " 10.0.0.1", "10.0.0.1/8", "1.2.3", "2001:DB8::",
    ],
    "device_model": [
        "Samsung SM-G991B/DS", None, "iPhone14,2", "Pixel 7 Pro (GE2AE)", "  xiaomi   Redmi_Note-9 ", "", "HUAWEI P30/ELE-L29",
        "SAMSUNG-SM-N960U", "iPad Air (5th generation)", "\u5c0f\u7c73 13", "moto g(60)", "Nokia",
    ],
    "json_extract": [
        '{"a": [1.50, {"b": null}], "q": "x"}', None, '["a", {"a": ["deep"]}]', '{"a": ["\\u00e9\\n", 2]}', '{"a": []}', "null",
        '"text"', "{bad", '{"a": [true], "a": [false]}', " 12 ", '{"a": [{"c": [1, 2]}]}', "",
    ],
}  # fmt: skip
