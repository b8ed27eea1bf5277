"""The name of a topic: ``kafka://host:port[,host:port]/topic``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from transforms.errors import InputError

SCHEME = "kafka://"
_ALLOWED = "kafka://host:port/topic, with more brokers after commas"
_BROKER = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class TopicLocation:
    """The brokers that are asked first, as ``host:port`` separated by commas, and the topic."""

    brokers: str
    topic: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.brokers}/{self.topic}"


def is_topic(location: str) -> bool:
    """Whether a location is a topic of Kafka."""
    return location.startswith(SCHEME)


def parse_topic(location: str) -> TopicLocation:
    """The topic at a location. Raises :class:`InputError`; a location with a password is not repeated in it."""
    brokers, slash, topic = location.removeprefix(SCHEME).partition("/")
    if "@" in brokers:
        raise InputError("a topic's location must have no user and no password: it is stored", where="kafka://…@…",
                         allowed=_ALLOWED, next_step="put them into a file of client properties: --client-config FILE")  # fmt: skip
    if not slash or not all(_BROKER.fullmatch(one) for one in brokers.split(",")):
        raise InputError("a topic must have brokers with ports and a name", where=location, value=brokers, allowed=_ALLOWED,
                         next_step="give the brokers as the producers have them (bootstrap.servers)")  # fmt: skip
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise InputError("a topic's name must have 1 to 249 letters, digits, dots, dashes and underscores", where=location,
                         value=topic, allowed=_ALLOWED, next_step="check the name")  # fmt: skip
    return TopicLocation(brokers, topic)
