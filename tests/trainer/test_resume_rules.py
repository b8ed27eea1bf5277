"""Each training option has a rule for a run that goes on, which the page prints."""

from __future__ import annotations

from dataclasses import fields

import pytest

from headrace.cli.options.option_groups import Mark, option_fields
from headrace.cli.train_options.training import TrainOptions
from tests.conftest import ROOT
from tests.support.generated_part import check_generated_part
from trainer.options.command_resume_rules import COMMAND_RULES
from trainer.options.config import TrainConfig
from trainer.options.resume_rules import RULES, Change, OptionChange, changes_weights, option_changes

_PAGE = ROOT / "docs" / "training-inside.md"


def change(option: str, before: object, after: object) -> OptionChange:
    (found,) = option_changes({option: before}, {option: after})
    return found


def test_each_option_has_a_rule_in_the_order_of_the_options() -> None:
    assert list(RULES) == [one.name for one in fields(TrainConfig)]
    assert all(one.reason for one in RULES.values())


def test_each_other_option_of_the_command_has_a_rule_in_the_order_of_its_help() -> None:
    """But for those of one call, and the two that a rule of their own says: the model is named, and each option of --config has a rule above."""
    given = [one for one in option_fields(TrainOptions) if not one.is_argument and Mark.OF_THE_CALL not in one.marks]
    assert [*COMMAND_RULES] == [one.name for one in given if one.name not in {*RULES, "config"}]
    assert all(one.reason for one in COMMAND_RULES.values())
    assert not COMMAND_RULES.keys() & RULES.keys()


def test_documents_have_the_options_that_weights_depend_on() -> None:
    found = TrainConfig("run", hashed={"a": {"capacity": 9}}, trial=()).to_document()
    given = {"hashed", "learning_rate_schedule", "pruning", "sequences", "tower_modules", "trial"}
    assert {*found, *given} == {name for name in RULES if changes_weights(name)}


@pytest.mark.parametrize(
    ("option", "before", "after", "is_allowed"),
    [
        ("batch_rows", 64, 32, True),
        ("embedding_dropout", 0.0, 0.2, False),
        ("embedding_learning_rate", 0.1, 0.2, True),
        ("dim", 4, 8, False),
        ("dropout", 0.1, 0.2, True),
        ("dropout", 0.0, 0.2, False),
        ("embedding_dropout", 0.2, 0, False),
        ("admit_after", 3, 2, True),
        ("admit_after", 1, 2, False),
        ("calibration", "platt", "isotonic", True),
        ("calibration", "none", "platt", False),
        ("pruning", {}, {"budget": 0.4}, True),
        ("pruning", None, {"budget": 0.4}, False),
        ("an option of a later release", None, 1, False),
    ],
)
def test_which_values_may_change(option: str, before: object, after: object, is_allowed: bool) -> None:
    found = change(option, before, after)
    assert found.is_allowed == is_allowed
    assert found.text() == f"option {option} is {after!r}, was {before!r}"
    assert found.reason


def test_a_batch_stays_with_an_optimizer_of_its_scale() -> None:
    for name in ("dense_optimizer", "linear_optimizer"):
        (found,) = option_changes({"batch_rows": 1, name: "newton"}, {"batch_rows": 2, name: "newton"})
        assert not found.is_allowed


def test_equal_options_are_no_change() -> None:
    assert option_changes({"b": 1, "a": 2}, {"a": 2, "b": 1}) == ()
    assert [one.option for one in option_changes({"b": 1}, {"a": 1})] == ["a", "b"]


def test_the_page_has_the_rules() -> None:
    """Those of training options, then those of the command's other options."""
    lines = ["| options | may change | why |\n", "|---|---|---|\n"]
    flags = {one.name: one.flag for one in option_fields(TrainOptions)}
    for rules, spelled in ((RULES, {}), (COMMAND_RULES, flags)):
        for when in Change:
            groups: dict[tuple[str, str], list[str]] = {}
            for name, rule in rules.items():
                if rule.change is when:
                    groups.setdefault((rule.reason, rule.only), []).append(f"`{spelled.get(name, name)}`")
            for (reason, only), names in groups.items():
                lines.append(f"| {', '.join(names)} | {when}{f', {only}' if only else ''} | {reason} |\n")
    check_generated_part(_PAGE, "".join(lines), "options of a run that goes on")
