"""Runs the commands of the page "Your own log in ten minutes", and compares what they print with what the page shows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.own_log_page import chapter, shown_outputs
from tests.support.own_logs import write_coupons, write_installs, write_installs_tsv, write_news
from tests.support.shown_output import difference

CHAPTERS = ("CSV and TSV", "When the NE is above 1", "JSON lines", "Parquet")


@pytest.fixture
def type_all(cli, tmp_path, monkeypatch):
    """Type a chapter's commands in a folder that holds the log, and compare their outputs with those of the page; the outputs by command."""

    def run(title: str, name: str) -> dict[str, str]:
        monkeypatch.chdir(tmp_path)
        found, shown = chapter(title), shown_outputs(title)
        if found.model:
            Path(f"{name}.py").write_text(found.model, encoding="utf-8")
        printed = {}
        for words in found.commands:
            assert words[0] == "headrace"
            text = cli(*words[1:]).out.replace(str(tmp_path / "home"), "/shop/.headrace")
            assert difference(shown[words], text) is None, f"{' '.join(words)}\n{text}"
            printed[" ".join(words[1:3])] = text
        return printed

    return run


def ne_of(output: str) -> float:
    return float(re.search(r"test .*normalized entropy ([\d.]+)", output).group(1))


@pytest.mark.slow
def test_csv(type_all, tmp_path):
    write_coupons(tmp_path / "coupons.csv")
    printed = type_all("CSV and TSV", "coupons")
    assert ne_of(printed["train coupons"]) < 1
    assert list((tmp_path / "scores").rglob("*.parquet"))
    assert (tmp_path / "inputs.parquet").exists()
    type_all("When the NE is above 1", "coupons")


@pytest.mark.slow
def test_json_lines(type_all, tmp_path):
    write_news(tmp_path / "news.jsonl")
    assert ne_of(type_all("JSON lines", "news")["train news"]) < 1


@pytest.mark.slow
def test_parquet(type_all, tmp_path):
    write_installs(tmp_path / "exports")
    assert ne_of(type_all("Parquet", "installs")["train installs"]) < 1


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


@pytest.mark.parametrize("title", CHAPTERS)
def test_the_page_shows_the_time_and_the_output_of_each_command(title):
    commands, shown = chapter(title).commands, shown_outputs(title)
    assert commands
    assert [words for words in commands if words not in shown] == []


def test_the_logs_are_the_same_every_time(tmp_path):
    for name, write in (("a.csv", write_coupons), ("a.jsonl", write_news), ("a.tsv", write_installs_tsv)):
        write(tmp_path / name, rows=50)
        first = (tmp_path / name).read_bytes()
        write(tmp_path / name, rows=50)
        assert (tmp_path / name).read_bytes() == first
    assert json.loads((tmp_path / "a.jsonl").read_text(encoding="utf-8").split("\n")[0])["user"]["geo"]
