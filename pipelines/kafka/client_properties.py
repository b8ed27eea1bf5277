"""The file of client properties: how the brokers are reached, and with which credentials. Its values are never printed or stored."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from transforms.errors import InputError

_MOST_BYTES = 1 << 20
#: Properties that decide which messages are read, and how; the table's offsets depend on them.
_MANAGED = {
    "auto.offset.reset": "the table's version says where it goes on",
    "auto.commit.interval.ms": "the table's version says where it goes on",
    "bootstrap.servers": "the location names the brokers: kafka://host:port/topic",
    "metadata.broker.list": "the location names the brokers: kafka://host:port/topic",
    "enable.auto.commit": "the table's version says where it goes on",
    "enable.auto.offset.store": "the table's version says where it goes on",
    "enable.partition.eof": "the end of a topic is always noticed",
    "group.id": "--commit-group names the group whose lag is shown elsewhere",
    "isolation.level": "only messages of committed transactions are read",
}
#: Properties of Java's clients that the C client does not know, and what it has instead.
_OF_JAVA = {
    "sasl.jaas.config": "sasl.username and sasl.password",
    "sasl.client.callback.handler.class": "sasl.mechanism",
    "ssl.keystore.type": "ssl.certificate.location and ssl.key.location, in PEM",
    "ssl.truststore.type": "ssl.ca.location, in PEM",
    "ssl.truststore.location": "ssl.ca.location, in PEM",
    "ssl.truststore.password": "ssl.ca.location, in PEM",
}


def read_properties(path: str) -> dict[str, str]:
    """The properties of a file, ``key=value`` by line; lines that begin with ``#`` or ``!`` are comments.

    Raises :class:`InputError` with the line and the key, never with the value.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        text = content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("the file of client properties must be readable text", where=f"--client-config {path}",
                         value=type(error).__name__, next_step="check the path and its permissions") from None  # fmt: skip
    if len(content) > _MOST_BYTES:
        raise InputError(f"the file of client properties must have at most {_MOST_BYTES} bytes", where=path)
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line[0] in "#!":
            continue
        key, equals, value = line.partition("=")
        key = key.strip()
        where = f"--client-config {path}, line {number}"
        if not equals or not key:
            raise InputError("a client property must be key=value", where=where, allowed="security.protocol=SASL_SSL",
                             next_step="correct the line; its text is not shown, since it may hold a secret")  # fmt: skip
        if key in found:
            raise InputError("a client property must be given once", where=where, value=key)
        found[key] = value.strip()
    check_properties(found, f"--client-config {path}")
    return found


def check_properties(properties: Mapping[str, str], where: str) -> None:
    """Raise :class:`InputError` for a property that Headrace sets itself, and for one that only Java's clients have."""
    for key in properties:
        if key in _MANAGED:
            raise InputError("this client property must not be set", where=where, value=key, allowed=_MANAGED[key],
                             next_step="leave it out")  # fmt: skip
        if key in _OF_JAVA:
            raise InputError("a client property must be one of librdkafka, this is one of Java's clients", where=where, value=key,
                             allowed=_OF_JAVA[key], next_step="see librdkafka's CONFIGURATION.md")  # fmt: skip
