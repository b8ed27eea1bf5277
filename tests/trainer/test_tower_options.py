"""The training option ``tower_modules`` is checked once, and any document of it is options or one clear error."""

from __future__ import annotations

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from trainer.errors import ConfigError
from trainer.options.config import TrainConfig, continued_options, recorded_options
from trainer.options.towers import TowerOptions, check_towers

TOWERS = [["a"], ["b", "c"]]

_DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 5) | st.floats() | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
)
_OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "towers": st.just(TOWERS) | _DOCUMENTS,
        **{
            name: _DOCUMENTS | st.integers(0, 8)
            for name in ("compression", "combinations", "projections", "dim", "width", "rank", "other")
        },
        "module": st.sampled_from(["projection", "combination", "other"]) | _DOCUMENTS,
    },
)


@settings(max_examples=scaled(400))
@given(_DOCUMENTS | _OPTIONS)
def test_any_document_is_options_or_is_refused(document):
    try:
        found = TowerOptions.read(document)
    except ConfigError:
        event("refused")
    else:
        assert TowerOptions.read(found.to_document()) == found
        assert not found.compression or not (found.dim or found.width)


@settings(max_examples=scaled(200))
@given(_DOCUMENTS)
def test_any_document_is_towers_or_is_refused(document):
    try:
        check_towers(document)
    except ConfigError:
        event("refused")
    else:
        names = [name for tower in document for name in tower]
        assert all(isinstance(name, str) and name for name in names)
        assert len(set(names)) == len(names) > 0


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (3, "tower_modules must be an object"),
        ({"compression": 2}, "tower_modules must be an object with towers"),
        ({"towers": TOWERS, "compression": 2, "dim": 4}, "one of them"),
        ({"towers": TOWERS, "compression": 2, "width": 4}, "one of them"),
        ({"towers": TOWERS, "module": "mixing"}, "tower_modules.module must be projection or combination"),
        ({"towers": TOWERS, "dim": 4, "combinations": 0.5}, "tower_modules.combinations must be a whole number"),
        ({"towers": TOWERS, "rank": 0}, "tower_modules.rank must be an integer"),
        ({"towers": TOWERS, "compression": 2, "projections": 1}, "where combinations or projections are given"),
        ({"towers": TOWERS, "compression": 0.5}, r"tower_modules.compression must be a number in \[1, 4096\]"),
        ({"towers": TOWERS, "compression": float("nan")}, "tower_modules.compression must be a number"),
        ({"towers": TOWERS, "dim": 4.0}, "tower_modules.dim must be an integer"),
        ({"towers": TOWERS, "dim": 4, "combinations": 0}, "combinations must be above 0 unless projections is"),
        ({"towers": TOWERS, "compresion": 4}, "must be a known one"),
        ({"towers": [["a"], ["a"]], "compression": 4}, "a feature must be in one tower"),
        ({"towers": [["a"], []], "compression": 4}, "a tower must be a list of names"),
        ({"towers": ["ab"], "compression": 4}, "a tower must be a list of names"),
    ],
)
def test_options_that_do_not_fit_are_refused(document, message):
    with pytest.raises(ConfigError, match=message):
        TrainConfig("run", tower_modules=document)


def test_a_configuration_without_towers_has_the_document_of_earlier_releases():
    config = TrainConfig("run")
    assert "tower_modules" not in config.to_document()
    given = TrainConfig("run", tower_modules={"towers": TOWERS, "compression": 4})
    assert given.to_document()["tower_modules"] == {"towers": TOWERS, "module": "projection", "compression": 4}
    assert TrainConfig.from_document(given.to_document(), run_dir="run") == given
    shaped = TrainConfig("run", tower_modules={"towers": TOWERS, "dim": 4, "projections": 2})
    assert shaped.to_document()["tower_modules"] == {
        "towers": TOWERS,
        "module": "projection",
        "projections": 2,
        "dim": 4,
    }


def test_runs_of_earlier_releases_keep_the_module_that_they_had():
    recorded = {"tower_modules": {"towers": TOWERS, "compression": 4}}
    assert recorded_options(recorded)["tower_modules"]["module"] == "combination"
    for asked in ({}, recorded):
        assert continued_options(recorded, asked)["tower_modules"] == {
            "towers": TOWERS,
            "module": "combination",
            "compression": 4,
        }
    newer = {"tower_modules": {"towers": TOWERS, "module": "projection"}}
    assert continued_options(newer, recorded)["tower_modules"]["module"] == "projection"
    assert continued_options(recorded, newer)["tower_modules"]["module"] == "projection", (
        "which a run that goes on refuses"
    )
    assert "tower_modules" not in recorded_options({})
