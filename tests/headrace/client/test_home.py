"""``hr.open``: the commands as methods, with processes of their own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

import headrace as hr
from headrace.demo.sample_log import SampleLogConfig, write_sample_log
from headrace.screens.dry_run import DryRunScreen
from headrace.screens.models import SubmittedScreen
from tests.headrace.conftest import SMALL, UNTRIED
from tests.support.processes import PATIENCE_SECS, wait_until
from trainer.run.progress.lock import is_locked
from transforms.errors import InputError, NotFound
from warehouse.errors import PlanChanged

pytestmark = pytest.mark.medium


def model(name="ctr", buckets=1000):
    made = hr.Model(name, client="search", label="clicked", table="log")
    words = hr.text("query").lower().unigrams()
    made.input("overlap", (words & hr.text("ad_title").lower().unigrams()).hash_buckets(buckets))
    made.input("price", hr.float32("price").fill_null(0.0).log1p())
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A home with a small log, a model and its memos."""
    root = tmp_path_factory.mktemp("client")
    write_sample_log(root / "logs", SMALL, late=False)
    with hr.open(root / "home", create=True) as w:
        assert w.add_table("log", root / "logs", time_column="time").table == "log"
        w.submit(model())
        assert w.work().failures == 0
    return root


@pytest.fixture
def home(folder):
    with hr.open(folder / "home") as w:
        yield w


def test_a_home_that_is_not_there_is_not_made(tmp_path):
    with pytest.raises(InputError, match=r"must be the folder of a warehouse") as caught:
        hr.open(tmp_path / "none")
    assert "create=True" in caught.value.next_step
    assert not (tmp_path / "none").exists()


def test_screens_are_those_of_the_commands(home, folder):
    shown = subprocess.run(
        [sys.executable, "-m", "headrace", "model", "show", "ctr", "--home", folder / "home", "--json"], capture_output=True, check=True
    )  # fmt: skip
    assert home.model("ctr").to_dict() == json.loads(shown.stdout)
    assert home.status().tables == 1
    assert [one.name for one in home.tables().tables] == ["log"]
    assert home.table("log").to_polars("partitions").height == SMALL.hours
    assert home.models().to_pandas()["name"].tolist() == ["ctr"]


def test_a_dry_run_changes_nothing_and_says_what_would_be_queued(home):
    assert isinstance(home.submit(model("other", 77), dry_run=True), DryRunScreen)
    assert [one.name for one in home.models().models] == ["ctr"]


def test_a_submission_of_what_is_known_queues_nothing(home):
    found = home.submit(model())
    assert isinstance(found, SubmittedScreen)
    assert found.to_polars()["queued"].sum() == 0


def test_check_takes_a_model_or_a_name(home):
    names = [{one.input for one in home.check(each, rows=50).models[0].inputs} for each in (model(), "ctr")]
    assert names == [{"overlap", "price"}] * 2


@pytest.mark.parametrize("wrong", [(), ("ctr", "ctr"), (7,)])
def test_what_is_no_model_is_refused(home, wrong):
    with pytest.raises(InputError, match=r"hr\.Model"):
        home.check(*wrong)


def test_explain_and_search_agree_on_what_is_there(home):
    decisions = home.explain("ctr").to_polars()
    assert decisions["hit"].all()
    found = home.search(column="price", sort="size", count=True)
    assert found.total == 1
    assert home.component(found.graphs[0].fingerprint).columns == ("price",)
    assert home.memos(found.graphs[0].fingerprint, newest=1).partitions[0].states
    assert home.values(found.graphs[0].fingerprint).rows > 0
    assert home.queue(timedelta(days=2)).minutes == 2880
    with pytest.raises(InputError, match="one before it"):
        home.model_diff("ctr")
    assert home.search(newer_than=timedelta(days=1), state="ready").graphs
    assert not home.search(older_than=timedelta(days=1)).graphs


def test_an_unknown_state_or_pattern_says_what_is_allowed(home):
    with pytest.raises(InputError, match="state") as caught:
        home.search(state="gone")
    assert "ready" in caught.value.allowed
    with pytest.raises(InputError):
        home.search(pattern="hash_buckets(")
    with pytest.raises(InputError, match="known one") as caught:
        home.evict(colunm="price")
    assert "column" in caught.value.allowed


def test_an_eviction_needs_the_plan_of_a_preview(home):
    preview = home.evict(column="price")
    assert not preview.plan.done
    assert preview.plan.memos == SMALL.hours
    with pytest.raises(PlanChanged):
        home.evict(column="price", plan="0" * 12)
    assert home.explain("ctr", inputs=["price"]).hits == SMALL.hours
    done = home.evict(column="price", plan=preview.plan.id, why="a test")
    assert done.plan.done
    assert home.explain("ctr", inputs=["price"]).misses == SMALL.hours
    home.submit(model())
    assert home.work().memos == SMALL.hours


def test_read_has_the_rows_of_the_table(home):
    rows = home.table("log").to_polars("partitions")["rows"].sum()
    assert home.read("ctr").num_rows == rows
    assert sum(part.num_rows for part in home.scan("ctr")) == rows


def test_a_log_is_inferred_and_imported(home, tmp_path):
    lines = "\n".join(f"{n},2026-03-02T0{n % 3}:00:00Z,{n % 2}" for n in range(300))
    (tmp_path / "clicks.csv").write_text("id,time,clicked\n" + lines + "\n")
    schema = home.infer(tmp_path / "clicks.csv")
    assert {one.name for one in schema.columns} == {"id", "time", "clicked"}
    imported = home.import_log("clicks", tmp_path / "clicks.csv", schema=schema, unique_by="id")
    assert (imported.rows, imported.rejected) == (300, 0)
    assert home.table("clicks").to_polars("partitions")["rows"].sum() == 300


def test_the_error_of_a_command_is_raised_here_with_its_class(home, capfd):
    with pytest.raises(NotFound, match="model") as caught:
        home.train("no_such_model")
    assert caught.value.next_step
    assert "error:" not in capfd.readouterr().err


def test_an_unknown_option_is_refused_with_what_the_command_said(home):
    with pytest.raises(InputError) as caught:
        home.work(no_such_option=3)
    assert "--no-such-option" in str(caught.value)


def test_what_does_not_end_is_refused(home):
    with pytest.raises(InputError, match="must end"):
        home.add_table("log", "logs", follow=True)
    with pytest.raises(InputError, match="must end"):
        home.evaluate("ctr", follow=True)


def test_a_command_that_is_killed_is_an_error(home, monkeypatch):
    from headrace.client import commands

    start = subprocess.Popen

    def killed(*arguments, **options):
        process = start(*arguments, **options)
        process.kill()
        return process

    monkeypatch.setattr(commands.subprocess, "Popen", killed)
    with pytest.raises(commands.CommandFailed, match="signal 9"):
        home.work()


def test_jobs_of_a_bucket_are_refused(home, monkeypatch):
    monkeypatch.setattr(type(home), "location", "gs://bucket/home")
    with pytest.raises(InputError, match="local folder"):
        home.jobs()


TRAINING = """
import sys
import headrace as hr

with hr.open(sys.argv[1]) as w:
    found = w.train("ctr", run_dir=sys.argv[2], config={config}, end="2026-03-03")
    print("ended", found.finished, found.exact, found.counted, found.run_dir)
"""


@pytest.fixture(scope="module")
def long_home(tmp_path_factory):
    """A log whose training in small batches takes long enough to be stopped."""
    root = tmp_path_factory.mktemp("long")
    write_sample_log(root / "logs", SampleLogConfig(hours=8, mean_rows_per_hour=6000, users=500, vocabulary_words=800), late=False)  # fmt: skip
    with hr.open(root / "home", create=True) as w:
        w.add_table("log", root / "logs", time_column="time")
        w.submit(model())
        w.work()
    return root


CONFIG = {**UNTRIED, "batch_rows": 1, "events_per_epoch": 4_000}


def started(root: Path, run_dir: Path) -> subprocess.Popen[str]:
    """A Python process whose training has committed an epoch, and is in the next one."""
    program = TRAINING.replace("{config}", repr(CONFIG))
    process = subprocess.Popen(
        [sys.executable, "-c", program, root / "home", run_dir], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )  # fmt: skip
    wait_until(lambda: any((run_dir / "checkpoints").glob("epoch-*")), "no epoch is committed", {"python": process})
    return process


def test_an_interrupt_stops_training_at_a_commit_and_the_next_call_goes_on(long_home, tmp_path):
    process = started(long_home, tmp_path / "run")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_SECS)
    assert "KeyboardInterrupt" in err
    assert "training stops after a commit" in err
    assert "ended" not in out
    assert not is_locked(tmp_path / "run")
    assert list((tmp_path / "run" / "checkpoints").iterdir())
    with hr.open(long_home / "home") as w:
        rows = w.table("log").to_polars("partitions")["rows"].sum()
        found = w.train("ctr", run_dir=tmp_path / "run", config={**CONFIG, "batch_rows": 256})
    assert found.resumed_from
    assert 0 < found.events_this_time < rows
    assert (found.exact, found.counted, found.fewest_times, found.most_times) == (True, rows, 1, 1)


def test_a_killed_python_takes_its_training_with_it(long_home, tmp_path):
    process = started(long_home, tmp_path / "run")
    process.kill()
    process.communicate()
    wait_until(lambda: not is_locked(tmp_path / "run"), "the training has not ended", {})
