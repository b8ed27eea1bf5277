"""Each option of ``headrace train`` is one of a job under faults, or ``headrace chaos`` says why it is not."""

from __future__ import annotations

import pytest

from headrace.cli.options.option_groups import Mark, option_fields
from headrace.cli.train_options.arguments import parse_training, training_values
from headrace.cli.train_options.chaos_options import PASSED, REFUSED, UNUSED, check_passed, unused_options
from headrace.cli.train_options.training import TrainOptions
from tests.conftest import ROOT
from tests.support.generated_part import check_generated_part
from transforms.errors import InputError

_PAGE = ROOT / "docs" / "chaos.md"
_OPTIONS = [one for one in option_fields(TrainOptions) if not one.is_argument]


def test_each_option_is_passed_refused_or_unused():
    own = {one.name for one in _OPTIONS if Mark.OF_THE_CALL not in one.marks}
    assert sorted([*PASSED, *REFUSED.keys() - {"save_as"}, *UNUSED]) == sorted(own)
    assert all([*REFUSED.values(), *UNUSED.values()])


def test_a_plain_training_has_nothing_refused_and_nothing_unused():
    check_passed(training_values(["ctr"]))
    assert unused_options(parse_training(["ctr"], hosts=1)) == ()


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["--follow"], "follow"),
        (["--least-hosts", "1"], "least_hosts"),
        (["--tpu", "local"], "tpu"),
        (["--device", "gpu"], "device"),
        (["--launcher", "remote"], "launcher"),
        (["--scale-servers-from", "1"], "scale_servers_from"),
        (["--save-as", "train.toml"], "save_as"),
    ],
)
def test_a_refused_option_has_its_reason(arguments, name):
    with pytest.raises(InputError, match="chaos cannot run a training with this option") as raised:
        check_passed(training_values(["ctr", *arguments]))
    assert raised.value.where == arguments[0]
    assert REFUSED[name] in raised.value.allowed


def test_an_unused_option_is_said_to_be_so():
    given = ["ctr", "--end", "2026-03-02", "--test-end", "2026-03-03", "--tensorboard", "events", "--grace-secs", "9"]
    found = unused_options(parse_training(given, hosts=1))
    assert [one.partition(" is not used: ")[0] for one in found] == ["--test-end", "--grace-secs", "--tensorboard"]
    assert all(one.partition(" is not used: ")[2] for one in found)


def test_the_page_has_the_reasons():
    flags = {one.name: one.flag for one in _OPTIONS}
    lines = ["| options of `headrace train` | under faults | why |\n", "|---|---|---|\n"]
    for what, reasons in (("refused", REFUSED), ("not used", UNUSED)):
        by_reason: dict[str, list[str]] = {}
        for name, reason in reasons.items():
            by_reason.setdefault(reason, []).append(f"`{flags[name]}`")
        lines += [f"| {', '.join(names)} | {what} | {reason} |\n" for reason, names in by_reason.items()]
    check_generated_part(_PAGE, "".join(lines), "options of chaos")
