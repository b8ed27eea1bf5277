"""The hosts of ``headrace evaluate --hosts``: what options name, and the channels between them."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from headrace.cli.options.scoring_hosts import ScoringHosts, scoring_command, scoring_hosts
from tests.support.processes import free_port
from trainer.errors import HostLost
from trainer.job.scoring.local_hosts import token_path
from transforms.child_process import module_command
from transforms.errors import InputError

MOST = 1024


def addresses(count):
    return ",".join(f"127.0.0.1:{7000 + k}" for k in range(count))


@pytest.mark.parametrize(
    ("hosts", "rank", "meeting", "expected"),
    [
        ("", -1, "", None),
        ("1", -1, "", None),
        ("2", -1, "", ScoringHosts(2, 0)),
        (str(MOST), -1, "", ScoringHosts(MOST, 0)),
        ("3", 0, "folder", ScoringHosts(3, 0, meeting="folder")),
        ("3", 2, "folder", ScoringHosts(3, 2, meeting="folder")),
        (" 127.0.0.1:7000 , 127.0.0.1:7001", 1, "", ScoringHosts(2, 1, ("127.0.0.1:7000", "127.0.0.1:7001"))),
        (addresses(2), 0, "", ScoringHosts(2, 0, tuple(addresses(2).split(",")))),
        (addresses(MOST), 5, "", ScoringHosts(MOST, 5, tuple(addresses(MOST).split(",")))),
    ],
)
def test_options_name_hosts(hosts, rank, meeting, expected):
    assert scoring_hosts(hosts, rank, "", meeting) == expected


@pytest.mark.parametrize(
    ("hosts", "rank", "token_file", "message"),
    [
        ("", 0, "", "must go with --hosts"),
        ("", -1, "token", "must go with --hosts"),
        ("0", -1, "", "--hosts must be in its range"),
        (str(MOST + 1), -1, "", "--hosts must be in its range"),
        ("9" * 30, -1, "", "--hosts must be in its range"),
        ("2", 0, "", "must go with the addresses"),
        ("2", -1, "token", "must go with the addresses"),
        ("127.0.0.1:7000", 0, "", "--hosts must be different addresses"),
        ("127.0.0.1:7000, 127.0.0.1:7000", 0, "", "--hosts must be different addresses"),
        (addresses(MOST + 1), 0, "", "--hosts must be different addresses"),
        (addresses(2), -1, "", "--rank must be the place"),
        (addresses(2), 2, "", "--rank must be the place"),
        ("²", -1, "", "address"),
    ],
)
def test_options_that_name_no_hosts_are_refused(hosts, rank, token_file, message):
    with pytest.raises(InputError, match=message):
        scoring_hosts(hosts, rank, token_file, "")


def test_hosts_on_several_machines_have_the_token_of_a_file(tmp_path):
    (tmp_path / "token").write_text("x" * 40 + "\n")
    found = scoring_hosts(addresses(2), 1, str(tmp_path / "token"), "")
    assert found is not None
    assert found.token == "x" * 40


def test_the_command_of_another_process_has_all_that_names_the_events():
    own = module_command("headrace", "evaluate", "m", "--run-dir", "run", "--version", "3")
    end = ["--hosts", "4", "--rank", "2", "--meeting", "folder", "--json"]
    assert scoring_command("m", 3, "run", "", "", "", 4, 2, Path("folder")) == [*own, *end]
    asked = ["--start", "a", "--end", "b", "--home", "c"]
    assert scoring_command("m", 3, "run", "a", "b", "c", 4, 2, Path("folder")) == [*own, *asked, *end]
    of_pass = ["--held-out", "2", "--table-version", "9"]
    assert scoring_command("m", 3, "run", "", "", "", 4, 2, Path("folder"), held_out=2, table_version=9) == [
        *own,
        *of_pass,
        *end,
    ]
    figures = ["--by", "x", "--by", "y", "--most", "7"]
    assert scoring_command("m", 3, "run", "", "", "", 4, 2, Path("folder"), by=("x", "y"), most=7) == [
        *own,
        *figures,
        *end,
    ]


def unused(rank, meeting):
    raise AssertionError("no process is started")


def told(hosts):
    """What each host hears of the others."""

    def work(own):
        with own.channels(unused) as found:
            return [int(one[0][0]) for one in found.steps.all_to_all([[np.array([own.rank])]] * own.hosts)]

    with ThreadPoolExecutor(len(hosts)) as pool:
        return list(pool.map(work, hosts))


def test_hosts_at_addresses_and_in_a_folder_hear_each_other(tmp_path):
    at = tuple(f"127.0.0.1:{free_port()}" for _ in range(2))
    assert told([ScoringHosts(2, rank, at, "t" * 20) for rank in range(2)]) == [[0, 1]] * 2
    token_path(tmp_path).write_text("t" * 20)
    assert told([ScoringHosts(3, rank, meeting=str(tmp_path)) for rank in range(3)]) == [[0, 1, 2]] * 3


def test_the_first_host_gives_up_with_a_process_that_fails():
    def command(rank, folder):
        assert rank == 1
        return [sys.executable, "-c", "import sys; sys.exit('no such model')"]

    with pytest.raises(HostLost) as caught, ScoringHosts(2, 0).channels(command):
        pass
    assert "no such model" in caught.value.value
