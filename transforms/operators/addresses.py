"""The grammar of URLs and IP addresses that the web operators share.

**URL.** The generic syntax of RFC 3986, appendix B, read over Unicode text (RFC 3987) and never refused::

    [scheme ":"] ["//" authority] path ["?" query] ["#" fragment]

* The scheme is a letter and then letters, digits, ``+``, ``-`` and ``.``; without one the text is a relative reference.
* Only ``//`` begins an authority: ``example.com/a`` is all path. Nothing is trimmed: strip white space before.
* The authority is ``[user information "@"] host [":" port]``, with the last ``@`` as the one that counts (as in browsers),
  the port any digits or none. The host is an IPv6 address in brackets, or code points other than ASCII controls,
  space and ``" # % / : < > ? @ [ \\ ] ^ ` { | }``. An authority that does not fit has no host.
* A percent escape is ``%`` and two hexadecimal digits; another ``%`` stands for itself. Text whose escapes do not spell
  UTF-8 is left as it is written.

**IP address.** IPv4 as four decimal numbers up to 255 without leading zeros; IPv6 as in RFC 4291, section 2.2, without a
zone, with or without brackets. An IPv4-mapped IPv6 address (``::ffff:a.b.c.d``) is the IPv4 address it carries.
"""

from __future__ import annotations

import ipaddress
import re

#: The code points that no host has, for a regular expression's set.
NOT_HOST = r"\x00-\x20\"#%/:<>?@\[\\\]^`{|}\x7f"
SCHEME = r"[A-Za-z][A-Za-z0-9+.\-]*"

_URL = re.compile(rf"(?s)(?:({SCHEME}):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#.*)?")
_AUTHORITY = re.compile(rf"(?s)(?:.*@)?(\[[0-9A-Fa-f:.]+\]|[^{NOT_HOST}]+)(?::[0-9]*)?")
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")
_UPPER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def url_scheme(url: str) -> str | None:
    """The scheme in lower case; None without one."""
    scheme = _parts(url)[0]
    return None if scheme is None else scheme.translate(_UPPER)


def url_host(url: str) -> str | None:
    """The host with ASCII letters in lower case; None if there is none or it is malformed."""
    authority = _parts(url)[1]
    matched = None if authority is None else _AUTHORITY.fullmatch(authority)
    return None if matched is None else matched[1].translate(_UPPER)


def url_path_tokens(url: str) -> list[str]:
    """The segments of the path that are not empty, each percent-decoded after the path was cut."""
    path = _parts(url)[2] or ""
    return [decoded(segment) for segment in path.split("/") if segment]


def url_query_parameter(url: str, *, name: str) -> str | None:
    """The first value of a query parameter, decoded; empty where there is a name alone; None where it is absent."""
    for pair in (_parts(url)[3] or "").split("&"):
        key, _, value = pair.partition("=")
        if _unescaped(key.replace("+", " ")) == name.encode():
            return decoded(value, plus_is_space=True)
    return None


def bare_host(text: str) -> str | None:
    """The host of a URL, or ``text`` itself if it is nothing but a host."""
    whole = re.fullmatch(rf"[^{NOT_HOST}]+", text)
    return url_host(text) if whole is None else text.translate(_UPPER)


def decoded(text: str, *, plus_is_space: bool = False) -> str:
    """``text`` without percent escapes; as it is written if they do not spell UTF-8."""
    try:
        return _unescaped(text.replace("+", " ") if plus_is_space else text).decode()
    except UnicodeDecodeError:
        return text


def ip_prefix(text: str, *, v4_bits: int, v6_bits: int) -> str | None:
    """The network an address is in, such as ``203.0.113.0/24``; None for what is no address."""
    address = _ip_address(text)
    if address is None:
        return None
    bits = v4_bits if address.version == 4 else v6_bits
    kept = int(address) >> (address.max_prefixlen - bits) << (address.max_prefixlen - bits)
    return f"{type(address)(kept).compressed}/{bits}"


def _ip_address(text: str) -> IpAddress | None:
    inner = text[1:-1] if re.fullmatch(r"(?s)\[.*:.*\]", text) else text
    try:
        address = None if "%" in inner else ipaddress.ip_address(inner)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _parts(url: str) -> tuple[str | None, str | None, str | None, str | None]:
    matched = _URL.fullmatch(url)
    assert matched is not None, "every text is a URL reference"
    return matched[1], matched[2], matched[3], matched[4]


def _unescaped(text: str) -> bytes:
    return _ESCAPE.sub(lambda escape: bytes([int(escape[1], 16)]), text.encode())
