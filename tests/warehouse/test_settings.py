"""Settings of a warehouse: which value counts, where it comes from, and files that are no settings."""

from __future__ import annotations

from dataclasses import fields
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.cli.main import run
from tests.support.examples import scaled
from tests.support.mutations import mutated
from transforms.errors import HeadraceError, InputError
from warehouse.config import WarehouseConfig
from warehouse.planning.rates import Prices, Rates
from warehouse.settings import settings_from, settings_of, variable_of, variables

FILE = b"""# of one warehouse
lease_secs = 120
fragment_rows = 5_000
catalog_url = "sqlite:///elsewhere.db"

[prices]
byte_month = 3e-11
"""


def of(found, name):
    return next(one for one in found.each if one.name == name)


def test_without_a_file_and_an_environment_all_are_defaults(tmp_path):
    found = settings_of(str(tmp_path), {}, {})
    assert found.config == WarehouseConfig(str(tmp_path))
    assert {one.source for one in found.each} == {"default"}


def test_each_setting_has_a_variable_of_its_own():
    count = (
        len(fields(WarehouseConfig)) - 3 + len(fields(Rates)) + len(fields(Prices))
    )  # without home, rates and prices
    assert len(set(variables())) == count
    assert variable_of("prices.byte_month") == "HEADRACE_PRICES_BYTE_MONTH"


def test_a_file_in_the_home_is_read(tmp_path):
    (tmp_path / "headrace.toml").write_bytes(FILE)
    found = settings_of(str(tmp_path), {}, {})
    assert (found.config.lease_secs, found.config.fragment_rows) == (120.0, 5000)
    assert found.config.url == "sqlite:///elsewhere.db"
    assert found.config.prices == Prices(byte_month=3e-11)
    assert of(found, "prices.byte_month").source == "headrace.toml"
    assert of(found, "prices.cpu_sec").source == "default"


SOURCES = st.tuples(*[st.none() | st.floats(0.5, 100)] * 3)


@given(SOURCES)
@settings(max_examples=scaled(60))
def test_what_is_given_comes_before_the_environment_and_that_before_the_file(values):
    in_file, in_environment, given_value = values
    found = settings_from(
        "home",
        {} if given_value is None else {"lease_secs": (given_value, "--lease-secs")},
        {} if in_environment is None else {"HEADRACE_LEASE_SECS": repr(in_environment)},
        None if in_file is None else f"lease_secs = {in_file!r}".encode(),
    )
    by_order = [
        ("--lease-secs", given_value),
        ("$HEADRACE_LEASE_SECS", in_environment),
        ("headrace.toml", in_file),
        ("default", 60.0),
    ]
    source, value = next((name, value) for name, value in by_order if value is not None)
    assert (of(found, "lease_secs").source, found.config.lease_secs) == (source, value)


@pytest.mark.parametrize(
    ("content", "where"),
    [
        (b"lease_sec = 1", "home/headrace.toml"),
        (b"home = '/other'", "home/headrace.toml"),
        (b"lease_secs = 'long'", "home/headrace.toml, lease_secs"),
        (b"lease_secs = nan", "home/headrace.toml, lease_secs"),
        (b"lease_secs = -1", "home/headrace.toml, lease_secs"),
        (b"fragment_rows = 1.5", "home/headrace.toml, fragment_rows"),
        (b"fragment_rows = true", "home/headrace.toml, fragment_rows"),
        (b"prices = 3", "home/headrace.toml"),
        (b"[prices]\ncpu_sec = 0.0", "home/headrace.toml, prices.cpu_sec"),
        (b"[rates]\nraw_read_secs = -1.0", "home/headrace.toml, rates.raw_read_secs"),
        (b"[other]\nx = 1", "home/headrace.toml"),
        (b"lease_secs = ", "home/headrace.toml"),
        (b"\xff\xfe", "home/headrace.toml"),
        (b"a = 1\n" * 20_000, "home/headrace.toml"),
    ],
)
def test_a_wrong_file_is_one_error_with_its_place(content, where):
    with pytest.raises(InputError) as caught:
        settings_from("home", {}, {}, content)
    assert caught.value.where == where


def test_a_wrong_variable_is_named():
    with pytest.raises(InputError) as caught:
        settings_from("home", {}, {"HEADRACE_MAX_ATTEMPTS": "0"}, None)
    assert caught.value.where == "$HEADRACE_MAX_ATTEMPTS"


def test_a_password_is_not_shown(tmp_path, capsys):
    run(["init", "--home", str(tmp_path)])
    (tmp_path / "headrace.toml").write_text(
        'catalog_url = "postgresql://me:Sec3ret@127.0.0.1:1/db"\nbusy_timeout_secs = 0'
    )
    for command in (["config", "show"], ["config", "show", "--json"], ["status"]):
        run([*command, "--home", str(tmp_path)])
    shown = capsys.readouterr()
    assert "Sec3ret" not in shown.out + shown.err
    with pytest.raises(InputError) as caught:
        settings_from("home", {}, {}, b'catalog_url = ["postgresql://me:Sec3ret@h/db"]')
    assert "Sec3ret" not in str(caught.value)


def test_a_command_shows_each_setting_and_its_source(tmp_path, capsys, monkeypatch):
    run(["init", "--home", str(tmp_path)])
    (tmp_path / "headrace.toml").write_text("lease_secs = 120")
    monkeypatch.setenv("HEADRACE_MAX_ATTEMPTS", "5")
    assert run(["config", "show", "--home", str(tmp_path)]) == 0
    lines = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert lines["lease_secs"][1:3] == ["120", "headrace.toml"]
    assert lines["max_attempts"][1:3] == ["5", "$HEADRACE_MAX_ATTEMPTS"]
    assert lines["pin_ttl_secs"][1:3] == ["300", "default"]


TOKENS = (
    b"lease_secs",
    b"=",
    b"[prices]",
    b"[[",
    b'"""',
    b"nan",
    b"inf",
    b"1e999",
    b"true",
    b"2026-01-01",
    b"{",
    b"\xff",
)


@given(st.integers(0, 2**32))
@settings(max_examples=scaled(1000))
def test_a_damaged_file_is_settings_or_one_error(seed):
    content = mutated(FILE, Random(seed), TOKENS)
    try:
        found = settings_from("home", {}, {}, content)
    except HeadraceError as error:
        where = error.where
    else:
        where = found.config.home
    assert where
