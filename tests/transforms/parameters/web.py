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
