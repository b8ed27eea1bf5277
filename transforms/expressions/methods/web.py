"""Methods of expressions over addresses and structured text."""

from __future__ import annotations

from typing import Self

from transforms.expressions.methods.base import Methods


class WebMethods(Methods):
    """URLs, IP addresses, device strings and JSON."""

    __slots__ = ()

    def url_scheme(self) -> Self:
        """The scheme of a URL, in lower case."""
        return self._apply("url_scheme")

    def url_host(self) -> Self:
        """The host of a URL, in lower case, without port."""
        return self._apply("url_host")

    def url_registered_domain(self) -> Self:
        """The registered domain of a URL or a host: ``example.co.uk`` of ``news.example.co.uk``."""
        return self._apply("url_registered_domain")

    def url_path_tokens(self) -> Self:
        """The segments of a URL's path, decoded."""
        return self._apply("url_path_tokens")

    def url_query_parameter(self, name: str) -> Self:
        """The first value of a parameter in a URL's query, decoded."""
        return self._apply("url_query_parameter", name=name)

    def ip_prefix(self, v4_bits: int = 24, v6_bits: int = 48) -> Self:
        """The network an IP address is in, such as ``203.0.113.0/24``."""
        return self._apply("ip_prefix", v4_bits=v4_bits, v6_bits=v6_bits)

    def device_model(self) -> Self:
        """A device string in one spelling: ``sm-g991b`` of ``Samsung SM-G991B/DS``."""
        return self._apply("device_model")

    def json_extract(self, path: str) -> Self:
        """The value at a path such as ``$.items[0].id`` of a JSON document, as text."""
        return self._apply("json_extract", path=path)
