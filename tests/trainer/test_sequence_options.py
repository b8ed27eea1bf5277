"""The training option ``sequences``."""

from __future__ import annotations

import pytest

from trainer.errors import ConfigError
from trainer.options.config import TrainConfig
from trainer.options.sequences import SequenceOptions, read_sequences

DIN = {"length": 5, "encoder": "din", "target": "item"}


@pytest.mark.parametrize(
    "document",
    [
        {"length": 1, "encoder": "mean"},
        {**DIN, "gaps": "ages", "hidden": [80, 40], "softmax": True},
        {"length": 4096, "encoder": "sasrec", "heads": 2, "layers": 3, "dropout": 0.2},
    ],
)
def test_a_document_is_what_it_was_read_from(document) -> None:
    options = SequenceOptions.read("history", document)
    assert options.to_document() == document
    assert SequenceOptions.read("history", options) is options
    config = TrainConfig("run", sequences={"history": document})
    assert TrainConfig.from_document(config.to_document(), run_dir="run") == config


def test_a_run_without_sequences_records_none() -> None:
    assert "sequences" not in TrainConfig("run").to_document()


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (3, "sequences must be an object by name of an input"),
        ({"history": 3}, r"sequences\['history'\] must be an object of options"),
        ({"history": {**DIN, "lenght": 2}}, "an option of a sequence must be a known one"),
        ({"history": {"encoder": "mean"}}, "must be an object with length"),
        ({"history": {"length": 3}}, "must be an object with encoder"),
        ({"history": {**DIN, "length": 0}}, r"length must be an integer in \[1, 4,096\]"),
        ({"history": {**DIN, "length": True}}, r"length must be an integer in \[1, 4,096\]"),
        ({"history": {**DIN, "encoder": "gru"}}, "encoder must be one of mean, din, sasrec"),
        ({"history": {**DIN, "target": ""}}, "target must be the name of an input with encoder din"),
        ({"history": {**DIN, "target": 7}}, "target must be the name of an input"),
        ({"history": {**DIN, "hidden": []}}, "hidden must be a list of widths"),
        ({"history": {**DIN, "hidden": [0]}}, "hidden must be an integer in"),
        ({"history": {**DIN, "softmax": 1}}, "softmax must be true or false"),
        ({"history": {**DIN, "heads": 1}}, "heads must be absent unless encoder is sasrec"),
        ({"history": {"length": 2, "encoder": "sasrec", "dropout": 1.0}}, r"dropout must be a number in \[0, 1\)"),
        ({"history": {"length": 2, "encoder": "sasrec", "dropout": float("nan")}}, "dropout must be a number"),
        ({"history": {"length": 2, "encoder": "mean", "hidden": [3]}}, "hidden must be absent unless encoder is din"),
        ({"history": {**DIN, "target": "history"}}, "whose target and gaps are two other inputs"),
        ({"history": {**DIN, "gaps": "item"}}, "whose target and gaps are two other inputs"),
        ({"history": DIN, "item": {"length": 2, "encoder": "mean"}}, "target must be an input that is no sequence"),
        ({"history": {**DIN, "gaps": "ages"}, "other": {**DIN, "gaps": "ages"}}, "whose input and gaps no other sequence has"),
        ({"history": {**DIN, "gaps": "other"}, "other": DIN}, "whose input and gaps no other sequence has"),
        ({"history": {**DIN, "gaps": "ages"}, "other": {**DIN, "target": "ages"}}, "target must be an input that is not the gaps"),
    ],
)  # fmt: skip
def test_other_documents_are_refused(document, message) -> None:
    with pytest.raises(ConfigError, match=message):
        read_sequences(document)
