"""Run files of ``headrace train``: they say what flags say, and are refused with a place where they do not."""

from __future__ import annotations

import json
import os
import random
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.cli.main import run
from headrace.cli.options.option_groups import Mark, command_line, group_of_values, option_fields, values_of_group
from headrace.cli.train_options.arguments import parse_training, save_options, training_values
from headrace.cli.train_options.run_file import read_run_file, write_run_file
from headrace.cli.train_options.training import TrainOptions
from tests.conftest import ROOT
from tests.headrace.conftest import UNTRIED
from tests.headrace.train_values import train_values
from transforms.errors import HeadraceError, InputError

FIELDS = option_fields(TrainOptions)
PATHS = [one.name for one in FIELDS if Mark.PATH in one.marks]
PAGE = (ROOT / "docs" / "run-file.md").read_text(encoding="utf-8")
EXAMPLE = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[0]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def written(text: str, name: str = "train.toml") -> str:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text, encoding="utf-8")
    return name


def test_the_example_of_the_page_says_what_its_flags_say() -> None:
    flags = re.findall(r"```\nheadrace train (.*?)```", PAGE.replace("\\\n", " "), re.DOTALL)[0].split()
    from_file = parse_training(["--from", written(EXAMPLE)])
    by_flags = parse_training([one.strip("'") for one in flags])
    assert json.loads(from_file.run.config) == json.loads(by_flags.run.config)
    values = [{**values_of_group(one), "config": "", "from_file": ""} for one in (from_file, by_flags)]
    assert values[0] == values[1]


def test_flags_replace_keys() -> None:
    name = written('model = "ctr"\nhosts = 2\nfollow = true\nbaseline = ["a", "b"]\n[options]\nbatch_rows = 8\n')
    options = parse_training(["--from", name])
    assert (options.model, options.hosts.hosts, options.hosts.follow) == ("ctr", 2, True)
    options = parse_training(
        ["other", "--from", name, "--no-follow", "--hosts", "3", "--baseline", "c", "--config", "x"]
    )
    assert (options.model, options.hosts.hosts, options.hosts.follow) == ("other", 3, False)
    assert (options.data.baseline, options.run.config) == (["c"], "x")


def test_values_may_be_written_as_toml_has_them() -> None:
    name = written('model = "a"\nend = 2026-03-02T12:00:00Z\nservers = 2\nepoch-secs = 60\nhosts = 1')
    options = parse_training(["--from", name])
    assert (options.data.end, options.servers.servers) == ("2026-03-02T12:00:00+00:00", "2")
    assert options.hosts.epoch_secs == 60.0
    name = written('model = "a"\nstart = 2026-03-02\nservers = ["a:1", "b:2"]')
    assert parse_training(["--from", name]).servers.servers == "a:1,b:2"


def test_paths_are_relative_to_the_file() -> None:
    name = written(
        'model = "a"\nplan = "p.json"\nhome = "s3://bucket/h"\nserver-ca = "/etc/ca"\nservers = 1\n'
        '[options]\nhot_rows = "h.json"\n[options.tower_modules]\ntowers = "t.json"',
        "runs/train.toml",
    )
    options = parse_training(["--from", name])
    assert (options.hosts.plan, options.run.home, options.servers.server_ca) == (
        "runs/p.json",
        "s3://bucket/h",
        "/etc/ca",
    )
    assert json.loads(options.run.config) == {
        "hot_rows": "runs/h.json",
        "tower_modules": {"towers": "runs/t.json"},
    }
    auto = written('model = "a"\n[options]\nhot_rows = "auto"', "runs/auto.toml")
    assert json.loads(parse_training(["--from", auto]).run.config) == {"hot_rows": "auto"}


@pytest.mark.medium
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hosts = \nx = 1", ("must be TOML", "train.toml", "line 1")),
        ("hosts = 1\nhosts = 2", ("must be TOML", "train.toml")),
        ("\xff", ("must be TOML", "train.toml")),
        ("test_end = 1", ("the keys of flags", "train.toml:test_end", "allowed: test-end")),
        ("batch_rows = 1", ("the keys of flags", "train.toml:batch_rows", "in the table [options]")),
        ("json = true", ("what holds for every call", "train.toml:json", "give --json on the command line")),
        ("hosts = true", ("have its flag's type", "train.toml:hosts", "True", "a whole number")),
        ("hosts = 99999999999999999999", ("have its flag's type", "a whole number of 64 bits")),
        ("follow = 1", ("train.toml:follow", "true or false")),
        ("epoch-secs = nan", ("train.toml:epoch-secs", "nan", "a finite number")),
        ("baseline = [1]", ("train.toml:baseline", "a list of strings")),
        ("servers = -1", ("train.toml:servers", "a number, or addresses")),
        ("end = 12:00:00", ("train.toml:end", "a time")),
        ("hosts.count = 1", ("train.toml:hosts", "a whole number")),
        ('plan = "a\\u0000b"', ("no control characters", "train.toml:plan")),
        ('model = ""', ("a model must have a name", "train.toml:model")),
        ('config = "a"\n[options]\nb = 1', ("train.toml:options", "train.toml:config", "leave one of them out")),
        ("options = 3", ("options must be a table", "train.toml:options", "3")),
        ("[options]\nat = 2026-03-02", ("train.toml:options.at", "2026-03-02", "write times in quotes")),
        ("[options]\na" + ".a" * 20_000 + " = 1", ("error:",)),
        ("hosts = 1\nleast-hosts = 2\nmodel = 'a'", ("--least-hosts (train.toml:least-hosts)", "up to 1")),
        ("model = 'a'\ntest-end = '2026-03-02'", ("--test-end (train.toml:test-end)", "give --end too")),
    ],
)
def test_a_wrong_file_is_one_error_with_its_place(
    text: str, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("train.toml").write_bytes(text.encode("latin-1"))
    assert run(["train", "--from", "train.toml"]) == 2
    found = " ".join(capsys.readouterr().err.split())
    assert all(one in found for one in words), found
    assert found.count("error:") == 1


@pytest.mark.parametrize("path", ["absent.toml", ".", "/dev/zero", "a\0b"])
def test_what_is_no_file_is_refused(path: str) -> None:
    with pytest.raises(InputError):
        read_run_file(path, FIELDS)


def test_a_long_file_is_refused() -> None:
    with pytest.raises(InputError, match="a run file must be short"):
        read_run_file(written("#" * (1 << 20) + "\n"), FIELDS)


@settings(suppress_health_check=list(HealthCheck))
@given(train_values(), st.sampled_from(["", "sub/folder", "../elsewhere"]))
def test_flags_to_file_to_flags(tmp_path: Path, chosen: dict[str, Any], folder: str) -> None:
    """Paths name the same files; all other values are the same."""
    (tmp_path / "work").mkdir(exist_ok=True)
    os.chdir(tmp_path / "work")
    values = {**training_values(["ctr"]), **chosen}
    name = written(write_run_file(values, FIELDS, folder), os.path.join(folder, "train.toml"))
    found = training_values(["--from", name])
    assert found.pop("from_file") == name
    for one in PATHS:
        taken, given_path = found.pop(one), values[one]
        assert taken == given_path if "://" in given_path else os.path.realpath(taken) == os.path.realpath(given_path)
    assert found == {key: value for key, value in values.items() if key not in (*PATHS, "from_file")}


_JSON = st.recursive(
    st.one_of(st.booleans(), st.none(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)


@settings(suppress_health_check=list(HealthCheck))
@given(st.dictionaries(st.text(max_size=8), _JSON, max_size=4))
def test_training_options_to_file_to_options(options: dict[str, Any]) -> None:
    """What TOML does not have, such as null, stands as JSON; text with a line end, too."""
    config = json.dumps(options)
    values = {**training_values(["ctr"]), "config": config}
    found = training_values(["--from", written(write_run_file(values, FIELDS, ""))])
    assert json.dumps(json.loads(found["config"]), sort_keys=True) == json.dumps(options, sort_keys=True)


@pytest.mark.medium
def test_thousands_of_mutations_are_files_or_refused() -> None:
    """One error of the project's kind, whatever the bytes are."""
    source, draw = EXAMPLE.encode(), random.Random(7)
    pieces = [b'"', b"'", b"[", b"]", b"{", b"}", b"=", b"\n", b".", b"\\", b"\0", b"\xff", b"1e999", b"-", b"#", b"'''", b"2026-03-02", b"true"]  # fmt: skip
    defaults = {**training_values(["ctr"]), "model": "ctr"}
    refused = 0
    for _ in range(4_000):
        content = bytearray(source)
        for _ in range(draw.randint(1, 4)):
            at, end = draw.randrange(len(content)), draw.randrange(len(content))
            what = draw.randrange(4)
            if what == 0:
                content[at : at + draw.randint(1, 9)] = b""
            elif what == 1:
                content[at:at] = draw.choice(pieces)
            elif what == 2:
                content[at:at] = content[min(at, end) : max(at, end)][:50]
            else:
                content[at] = draw.randrange(256)
        Path("train.toml").write_bytes(content)
        with suppress(HeadraceError):  # any other exception is a defect
            group_of_values(TrainOptions, {**defaults, **read_run_file("train.toml", FIELDS).values})
            refused -= 1
        refused += 1
    assert 1_000 < refused < 4_000


def test_a_file_is_written_and_not_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    save_options(parse_training(["ctr", "--hosts", "2", "--save-as", "train.toml"]))
    save_options(parse_training(["ctr", "--hosts", "2", "--save-as", "train.toml"]))  # it says the same
    assert parse_training(["--from", "train.toml"]).hosts.hosts == 2
    with pytest.raises(InputError, match="must not replace another file"):
        save_options(parse_training(["ctr", "--hosts", "3", "--save-as", "train.toml"]))
    save_options(parse_training(["--from", "train.toml", "--hosts", "3", "--save-as", "./train.toml"]))
    assert parse_training(["--from", "train.toml"]).hosts.hosts == 3
    with pytest.raises(InputError, match="cannot be written"):
        save_options(parse_training(["ctr", "--save-as", "absent/train.toml"]))


def test_no_secret_is_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CATALOG_URL", "postgresql://me:hidden@db/catalog")
    written("a-secret-token", "token")
    save_options(parse_training(["ctr", "--servers", "a:1", "--server-token-file", "token", "--save-as", "train.toml"]))
    text = Path("train.toml").read_text()
    assert 'server-token-file = "token"' in text
    assert "a-secret-token" not in text
    assert "hidden" not in text
    for home in ("s3://me:hidden@host/h", "s3://hidden@host/h", "postgresql://host/d?user=u&password=hidden"):
        with pytest.raises(InputError, match="must hold no password") as refused:
            save_options(parse_training(["ctr", "--home", home, "--save-as", "other.toml"]))
        assert "hidden" not in str(refused.value)
        assert not Path("other.toml").exists()
    with pytest.raises(InputError, match="must have its flag's type") as refused:
        parse_training(["--from", written('model = "ctr"\nhome = ["postgresql://u:hidden@h/d"]', "wrong.toml")])
    assert "hidden" not in str(refused.value)


def test_a_queued_job_does_not_depend_on_the_file(cli: Any) -> None:
    """The arguments of the job are those that the file has said."""
    name = written('model = "ctr"\nhosts = 2\nreaders = 1\nend = "2026-03-02"')
    text = json.dumps(cli("jobs", "submit", "--json", "--", "train", "--from", name, "--readers", "2").json)
    assert "train.toml" not in text
    assert command_line(parse_training(["--from", name, "--readers", "2"]), ("from_file",)) == [
        "ctr", "--end", "2026-03-02", "--hosts", "2", "--readers", "2",
    ]  # fmt: skip


def test_the_file_of_a_queued_job_is_written_once(cli: Any) -> None:
    """Its job must not write it again, beside a file that has changed since."""
    text = json.dumps(
        cli("jobs", "submit", "--json", "--", "train", "ctr", "--hosts", "2", "--save-as", "train.toml").json
    )
    assert "train.toml" not in text
    assert parse_training(["--from", "train.toml"]).hosts.hosts == 2


def test_training_from_a_file_is_that_of_the_flags(cli: Any, small_log: Any, models_file: Any) -> None:
    """Writes the file and trains; the file trains the rest, by the same options."""
    cli("table", "add", "log", small_log, "--time-column", "time")
    cli("model", "submit", models_file, "--table", "log")
    config = json.dumps({**UNTRIED, "batch_rows": 64})
    flags = ("first", "--end", "2026-03-02T01:00", "--config", config, "--run-dir", "run")
    first = cli("train", *flags, "--save-as", "train.toml", "--json").json
    text = Path("train.toml").read_text()
    assert "[options]\n" in text
    assert "batch_rows = 64\n" in text
    assert cli("train", "--from", "train.toml", "--json").json["events_this_time"] == 0
    rest = cli("train", "--from", "train.toml", "--end", "2026-03-02T02:00", "--json").json
    assert rest["resumed_from"]
    assert rest["events_this_time"] == rest["events_in_range"] - first["events_in_range"] > 0
