"""The names of topics, and files of client properties: what is refused, and that no secret is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.kafka.client_properties import read_properties
from pipelines.kafka.location import is_topic, parse_topic
from transforms.errors import InputError


def test_a_topic_with_brokers() -> None:
    found = parse_topic("kafka://a:9092,[::1]:9093/team.clicks_1-x")
    assert (found.brokers, found.topic) == ("a:9092,[::1]:9093", "team.clicks_1-x")
    assert str(found) == "kafka://a:9092,[::1]:9093/team.clicks_1-x"
    assert is_topic(str(found))
    assert not is_topic("/data/kafka")


@pytest.mark.parametrize("place", ["kafka://", "kafka://a:1", "kafka://a/t", "kafka://a:1,/t", "kafka://a:1/", "kafka://a:1/t/u",
                                   "kafka://a:1/..", "kafka://a:1/t?x=1", f"kafka://a:1/{'t' * 250}"])  # fmt: skip
def test_other_locations_are_refused(place: str) -> None:
    with pytest.raises(InputError, match="a topic"):
        parse_topic(place)


def test_a_password_in_a_location_is_not_repeated() -> None:
    with pytest.raises(InputError, match="no user and no password") as caught:
        parse_topic("kafka://me:hidden@a:1/t")
    assert "hidden" not in str(caught.value)


def test_properties_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "client").write_text("# one\n! two\n\n security.protocol = SASL_SSL \nsasl.password=a=b#c\n")
    assert read_properties(str(tmp_path / "client")) == {"security.protocol": "SASL_SSL", "sasl.password": "a=b#c"}


@pytest.mark.parametrize(
    ("text", "said"),
    [("sasl.password hidden", "must be key=value"), ("group.id=hidden", "must not be set"), ("isolation.level=hidden", "must not be set"),
     ("sasl.jaas.config=hidden", "one of Java's clients"), ("a=hidden\na=hidden", "given once")],
)  # fmt: skip
def test_a_refused_property_shows_no_value(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "client").write_text(text)
    with pytest.raises(InputError, match=said) as caught:
        read_properties(str(tmp_path / "client"))
    assert "hidden" not in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for name in ("none", "bytes"):
        with pytest.raises(InputError, match="must be readable text"):
            read_properties(str(tmp_path / name))
