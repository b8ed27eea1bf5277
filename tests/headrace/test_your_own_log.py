"""Runs the commands of the page "Your own log in ten minutes"."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.own_log_page import chapter
from tests.support.own_logs import write_coupons, write_installs, write_installs_tsv, write_news


@pytest.fixture
def type_all(cli, tmp_path, monkeypatch):
    """Type a chapter's commands in a folder that holds the log and the model file; the answers by command."""

    def run(title: str, name: str) -> dict[str, object]:
        monkeypatch.chdir(tmp_path)
        found = chapter(title)
        Path(f"{name}.py").write_text(found.model, encoding="utf-8")
        answers = {}
        for words in found.commands:
            assert words[0] == "headrace"
            answer = cli(*words[1:])
            answers[" ".join(words[1 : 2 if words[1] in ("work", "train", "predict") else 3])] = answer
        return answers

    return run


def ne_of(answer) -> float:
    return float(re.search(r"test .*normalized entropy ([\d.]+)", answer.out).group(1))


@pytest.mark.slow
def test_csv(type_all, tmp_path):
    write_coupons(tmp_path / "coupons.csv")
    answers = type_all("CSV and TSV", "coupons")
    assert "imported 6,000 rows" in answers["table import"].out
    assert ne_of(answers["train"]) < 1
    assert list((tmp_path / "scores").rglob("*.parquet"))
    assert (tmp_path / "inputs.parquet").exists()


@pytest.mark.slow
def test_json_lines(type_all, tmp_path):
    write_news(tmp_path / "news.jsonl")
    answers = type_all("JSON lines", "news")
    assert "imported 6,000 rows" in answers["table import"].out
    assert ne_of(answers["train"]) < 1


@pytest.mark.slow
def test_parquet(type_all, tmp_path):
    write_installs(tmp_path / "exports")
    answers = type_all("Parquet", "installs")
    assert "imported 6,000 rows" in answers["table import"].out
    assert ne_of(answers["train"]) < 1


@pytest.mark.slow
def test_tsv_by_the_same_commands(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_installs_tsv(tmp_path / "installs.tsv")
    Path("installs.py").write_text(chapter("Parquet").model, encoding="utf-8")
    cli("table", "infer", "installs.tsv", "--output", "installs.json")
    done = cli("table", "import", "installs", "installs.tsv", "--schema", "installs.json", "--json").json
    assert (done["rows"], done["rejected"]) == (6000, 0)
    cli("model", "submit", "installs.py")
    trained = cli("train", "installs", "--end", "2026-03-05", "--test-end", "2026-03-06", "--json").json
    assert trained["test"]["normalized_entropy"] < 1


def test_the_logs_are_the_same_every_time(tmp_path):
    for name, write in (("a.csv", write_coupons), ("a.jsonl", write_news), ("a.tsv", write_installs_tsv)):
        write(tmp_path / name, rows=50)
        first = (tmp_path / name).read_bytes()
        write(tmp_path / name, rows=50)
        assert (tmp_path / name).read_bytes() == first
    assert json.loads((tmp_path / "a.jsonl").read_text(encoding="utf-8").split("\n")[0])["user"]["geo"]
