"""The settings of the wire: each encoding is chosen by itself."""

from __future__ import annotations

import pytest

from trainer.errors import ConfigError
from trainer.tables.wire.settings import IDS, VALUES, WireSettings


def test_nothing_is_compressed_unless_it_is_chosen() -> None:
    assert WireSettings() == WireSettings(ids="plain", values="float32")


@pytest.mark.parametrize("ids", IDS)
@pytest.mark.parametrize("values", VALUES)
def test_encodings_are_chosen_by_themselves(ids: str, values: str) -> None:
    settings = WireSettings(ids=ids, values=values)
    assert (settings.ids, settings.values) == (ids, values)


@pytest.mark.parametrize(("name", "allowed"), [("ids", "plain, unique"), ("values", "float32, fp16, fp14")])
def test_unknown_encodings_are_refused(name: str, allowed: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} on the wire must have a known encoding") as caught:
        WireSettings(**{name: "bf16"})
    assert (caught.value.value, caught.value.allowed) == ("bf16", allowed)
