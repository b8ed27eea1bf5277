"""Operators over addresses and structured text: URLs, IP addresses, device strings, JSON.

A malformed value gives null (of a list: no items), never an error. The grammars are in
:mod:`~transforms.operators.addresses`, :mod:`~transforms.operators.public_suffixes`,
:mod:`~transforms.operators.devices` and :mod:`~transforms.operators.json_path`.
"""

from __future__ import annotations

from collections.abc import Callable

from transforms.operators import addresses, devices, json_path, public_suffixes
from transforms.operators.declaration import Arg, Example, Imported, Law, Operator, Param, Scalar
from transforms.operators.signatures import TEXT, always, not_empty
from transforms.types import Dense, DType, Ragged

_KERNELS = "transforms.kernels.web"
_TWINS = "transforms.twins.web"
_URL = (Arg("url", dense=TEXT),)
_ONE = always(Dense(DType.STRING))


def _registered_domain(url: str) -> str | None:
    host = addresses.bare_host(url)
    return None if host is None else public_suffixes.registered_domain(host)


def _bits(most: int) -> Callable[[Scalar], str]:
    return lambda value: "" if isinstance(value, int) and 0 <= value <= most else f"0 .. {most}"


def _a_path(value: Scalar) -> str:
    return "" if json_path.steps_of(str(value)) is not None else "$ followed by steps .name, ['any name'] or [0]"


URL_SCHEME = Operator(
    name="url_scheme",
    version=1,
    family="web",
    summary="The scheme of a URL (RFC 3986) in lower case; null without one.",
    args=_URL,
    result=_ONE,
    reference=addresses.url_scheme,
    kernel=Imported(_KERNELS, "url_scheme"),
    cost_ns=30,
    lifts=True,
    twin=Imported(_TWINS, "url_scheme"),
    example=Example(
        'hr.text("url").url_scheme()', {"url": ["HTTPS://example.com/a", "example.com/a"]}, ["https", None]
    ),
)

URL_HOST = Operator(
    name="url_host",
    version=1,
    family="web",
    summary="The host of a URL, without user information and port, ASCII letters in lower case, an IPv6 address in brackets; null without // or if malformed.",
    args=_URL,
    result=_ONE,
    reference=addresses.url_host,
    kernel=Imported(_KERNELS, "url_host"),
    cost_ns=90,
    lifts=True,
    twin=Imported(_TWINS, "url_host"),
    example=Example(
        'hr.text("url").url_host()',
        {"url": ["https://ann@Shop.Example.com:8443/a", "//[2001:DB8::1]/", "example.com/a"]},
        ["shop.example.com", "[2001:db8::1]", None],
    ),
)

URL_REGISTERED_DOMAIN = Operator(
    name="url_registered_domain",
    version=1,
    family="web",
    summary="The public suffix and the label before it, of a URL's host or of a bare host, by the Public Suffix List of 2026-10-22, ICANN and private sections; null for an address or a public suffix itself.",
    args=_URL,
    result=_ONE,
    reference=_registered_domain,
    kernel=Imported(_KERNELS, "url_registered_domain"),
    cost_ns=250,
    lifts=True,
    twin=Imported(_TWINS, "url_registered_domain"),
    example=Example(
        'hr.text("url").url_registered_domain()',
        {"url": ["https://news.example.co.uk/a", "ann.github.io", "http://co.uk/", "http://203.0.113.9/"]},
        ["example.co.uk", "ann.github.io", None, None],
    ),
)

URL_PATH_TOKENS = Operator(
    name="url_path_tokens",
    version=1,
    family="web",
    summary="The segments of a URL's path that are not empty, in order, each percent-decoded after the path was cut (as written if that is not UTF-8).",
    args=_URL,
    result=always(Ragged(DType.STRING)),
    reference=addresses.url_path_tokens,
    kernel=Imported(_KERNELS, "url_path_tokens"),
    cost_ns=110,
    twin=Imported(_TWINS, "url_path_tokens"),
    example=Example(
        'hr.text("url").url_path_tokens()',
        {"url": ["https://example.com/shoes//red%20ones/a%2Fb?size=9", "https://example.com"]},
        [["shoes", "red ones", "a/b"], []],
    ),
)

URL_QUERY_PARAMETER = Operator(
    name="url_query_parameter",
    version=1,
    family="web",
    summary="The first value of a parameter in a URL's query, decoded as a form is: + is a space, then percent escapes (as written if that is not UTF-8); empty for a name without =, null where the name is absent.",
    args=_URL,
    result=_ONE,
    reference=addresses.url_query_parameter,
    kernel=Imported(_KERNELS, "url_query_parameter"),
    params=(Param("name", str, check=not_empty, doc="the parameter's name, decoded; case counts"),),
    cost_ns=110,
    lifts=True,
    twin=Imported(_TWINS, "url_query_parameter"),
    example=Example(
        'hr.text("url").url_query_parameter("q")',
        {"url": ["https://example.com/?page=2&q=red+shoes%21&q=x", "https://example.com/?q", "https://example.com/"]},
        ["red shoes!", "", None],
    ),
)

IP_PREFIX = Operator(
    name="ip_prefix",
    version=1,
    family="web",
    summary="The network an IP address is in, canonical as in RFC 5952; an IPv4-mapped IPv6 address counts as the IPv4 address it carries; null for what is no address.",
    args=(Arg("address", dense=TEXT),),
    result=_ONE,
    reference=addresses.ip_prefix,
    kernel=Imported(_KERNELS, "ip_prefix"),
    params=(
        Param("v4_bits", int, 24, check=_bits(32), doc="leading bits kept of an IPv4 address"),
        Param("v6_bits", int, 48, check=_bits(128), doc="leading bits kept of an IPv6 address"),
    ),
    cost_ns=70,
    lifts=True,
    twin=Imported(f"{_TWINS}_addresses", "ip_prefix"),
    example=Example(
        'hr.text("ip").ip_prefix()',
        {"ip": ["203.0.113.9", "2001:DB8:0:7::1", "::ffff:198.51.100.7", "203.0.113.300"]},
        ["203.0.113.0/24", "2001:db8::/48", "198.51.100.0/24", None],
    ),
)

DEVICE_MODEL = Operator(
    name="device_model",
    version=1,
    family="web",
    summary="A device string in one spelling: lower case, single spaces, cut at the first / (and a word build before it), without the maker's name before a model that begins with a letter; null if nothing is left.",
    args=(Arg("device", dense=TEXT),),
    result=_ONE,
    reference=devices.device_model,
    kernel=Imported(_KERNELS, "device_model"),
    laws=frozenset({Law.IDEMPOTENT}),
    cost_ns=130,
    lifts=True,
    twin=Imported(_TWINS, "device_model"),
    example=Example(
        'hr.text("device").device_model()',
        {"device": ["Samsung SM-G991B/DS", "SAMSUNG-SM-G991B", "iPhone14,2", "Google Pixel 6 Build/SD1A", "Nokia 6.1"]},
        ["sm-g991b", "sm-g991b", "iphone14,2", "pixel 6", "nokia 6.1"],
    ),
)

JSON_EXTRACT = Operator(
    name="json_extract",
    version=1,
    family="web",
    summary="The value at a path of a JSON document (RFC 8259): the text of a string, any other value as it is written; null where it is absent or JSON null, or the document is malformed.",
    args=(Arg("document", dense=TEXT),),
    result=_ONE,
    reference=json_path.json_extract,
    kernel=Imported(_KERNELS, "json_extract"),
    params=(
        Param("path", str, check=_a_path, doc="$ and then steps .name, ['any name'] or [0]: a subset of RFC 9535"),
    ),
    cost_ns=250,
    lifts=True,
    untwinned="TensorFlow has no graph operation that reads JSON, and its regular expressions cannot count nesting.",
    example=Example(
        'hr.text("context").json_extract("$.items[0].id")',
        {"context": ['{"items": [{"id": "sk\\u00fc-1"}]}', '{"items": [{"id": {"n": 1}}]}', '{"items": []}', "{oops"]},
        ["skü-1", '{"n": 1}', None, None],
    ),
)

OPERATORS: tuple[Operator, ...] = (
    URL_SCHEME,
    URL_HOST,
    URL_REGISTERED_DOMAIN,
    URL_PATH_TOKENS,
    URL_QUERY_PARAMETER,
    IP_PREFIX,
    DEVICE_MODEL,
    JSON_EXTRACT,
)
