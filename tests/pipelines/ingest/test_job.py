from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import apache_beam as beam
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from pipelines.errors import NoLogFiles, TooManyRejects, TruncatedLog
from pipelines.ingest.job import STEPS, ImportConfig, ImportJob, import_logs
from pipelines.ingest.report import ImportReport
from pipelines.log_schemas.schema import LogSchema
from pipelines.outputs.partitions import many_partitions_warning
from pipelines.outputs.publication import ImportLedger
from pipelines.runners.runner import RunnerOptions, pipeline_options
from tests.pipelines.logs import log_schema, tsv_line, write_log
from transforms.errors import Busy, DataError, InputError

ONE_THREAD = RunnerOptions(workers=1)


def configure(tmp_path: Path, *files: str, **more: object) -> ImportConfig:
    output, rejects = str(tmp_path / "clicks"), str(tmp_path / "rejects")
    return ImportConfig(files or (str(tmp_path / "logs"),), log_schema(), output, rejects, **more)  # type: ignore[arg-type]


def run(config: ImportConfig) -> ImportReport:
    return import_logs(config, ONE_THREAD)


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def two_logs(tmp_path: Path) -> None:
    write_log(tmp_path / "logs" / "a.tsv.gz", tsv_line(1, 0.9) + tsv_line(2, 0.1) + tsv_line(3, 1.5))
    write_log(tmp_path / "logs" / "b.tsv", tsv_line(4, 25) + tsv_line(5, 0.1) + tsv_line(6, 1.5))


def test_rows_land_in_their_hours_in_time_order(tmp_path: Path) -> None:
    two_logs(tmp_path)
    report = run(configure(tmp_path))
    assert (report.rows, report.rejected, report.late_rows, report.files) == (6, 0, 0, 2)
    assert report.partitions == ("date=2026-01-01/hour=00", "date=2026-01-01/hour=01", "date=2026-01-02/hour=01")
    users = {
        partition: pq.read_table(tmp_path / "clicks" / partition).column("user").to_pylist()
        for partition in report.partitions
    }
    # 2 and 5 have one time: the order of files decides; 3 and 6 likewise.
    assert list(users.values()) == [[2, 5, 1], [3, 6], [4]]
    assert report.written_bytes == sum(len(content) for content in tree(tmp_path / "clicks").values())


def test_days_are_partitions_where_the_schema_says_so(tmp_path: Path) -> None:
    two_logs(tmp_path)
    config = configure(tmp_path)
    report = run(ImportConfig(config.files, log_schema(partition_by="day"), config.output, config.rejects))
    assert report.partitions == ("date=2026-01-01", "date=2026-01-02")


def test_a_layout_of_many_partitions_is_warned_of_before_it_is_written(tmp_path, monkeypatch, caplog) -> None:
    two_logs(tmp_path)
    monkeypatch.setattr("pipelines.outputs.partitions.ADVISED_PARTITIONS", 2)
    monkeypatch.setattr(ImportJob, "write_partition", fail)
    with pytest.raises(RuntimeError, match="nothing is written"):
        run(configure(tmp_path))
    (warning,) = [record.getMessage() for record in caplog.records if "partitions" in record.getMessage()]
    assert warning.startswith(
        f"{tmp_path / 'logs' / 'b.tsv'} has events of 3 partitions, one for each hour with events: above 2"
    )
    assert warning.endswith('next: "partition_by": "day" in the schema, or --partition-by day for Parquet')


def fail(*_: object) -> None:
    raise RuntimeError("nothing is written")


def test_a_layout_of_few_partitions_is_not_warned_of() -> None:
    assert many_partitions_warning(10_000, "day") == ""
    assert "import the years that models read" in many_partitions_warning(10_001, "day")


def test_the_same_files_give_the_same_bytes_whatever_runs_them(tmp_path: Path) -> None:
    two_logs(tmp_path)
    run(configure(tmp_path))
    first = tree(tmp_path / "clicks")
    other = ImportConfig((str(tmp_path / "logs" / "b.tsv"), str(tmp_path / "logs" / "a*")), log_schema(),
                         str(tmp_path / "again"), str(tmp_path / "rejects"))  # fmt: skip
    import_logs(other, RunnerOptions(workers=3))
    assert tree(tmp_path / "again") == first


def test_importing_again_changes_nothing(tmp_path: Path) -> None:
    two_logs(tmp_path)
    run(configure(tmp_path))
    first = tree(tmp_path / "clicks")
    report = run(configure(tmp_path))
    assert (report.rows, report.files, report.skipped_files, report.written_files) == (0, 0, 2, 0)
    assert tree(tmp_path / "clicks") == first


def test_later_files_add_late_parts_and_touch_nothing(tmp_path: Path) -> None:
    two_logs(tmp_path)
    run(configure(tmp_path))
    first = tree(tmp_path / "clicks")
    write_log(tmp_path / "logs" / "c.tsv", tsv_line(7, 1.2) + tsv_line(8, 1.1) + tsv_line(9, 30))
    report = run(configure(tmp_path))
    assert (report.rows, report.late_rows, report.files, report.skipped_files) == (3, 2, 1, 2)
    after = tree(tmp_path / "clicks")
    assert {name: after[name] for name in first} == first
    (late,) = (name for name in after if "late-" in name)
    assert late.startswith("date=2026-01-01/hour=01/late-")
    assert pq.read_table(tmp_path / "clicks" / late).column("user").to_pylist() == [8, 7]


def test_an_imported_file_that_grew_is_refused(tmp_path: Path) -> None:
    two_logs(tmp_path)
    run(configure(tmp_path))
    with (tmp_path / "logs" / "b.tsv").open("a") as file:
        file.write(tsv_line(9, 3))
    with pytest.raises(DataError, match="must not change") as caught:
        run(configure(tmp_path))
    assert caught.value.where == str(tmp_path / "logs" / "b.tsv")


def test_equal_rows_of_two_files_are_two_rows(tmp_path: Path) -> None:
    write_log(tmp_path / "logs" / "a.tsv", tsv_line(1, 0))
    run(configure(tmp_path))
    write_log(tmp_path / "logs" / "b.tsv", tsv_line(1, 0))
    run(configure(tmp_path))
    assert ds.dataset(tmp_path / "clicks", format="parquet").count_rows() == 2


def test_bad_rows_go_to_a_reject_file_with_place_and_reason(tmp_path: Path) -> None:
    bad = tsv_line("x", 0) + "short\n"
    path = write_log(tmp_path / "logs" / "a.tsv", tsv_line(1, 0) + bad + "".join(tsv_line(n, 0) for n in range(50)))
    report = run(configure(tmp_path))
    assert (report.rows, report.rejected) == (51, 2)
    assert report.rejects == (str(tmp_path / "rejects" / "a.tsv.jsonl"),)
    first, second = (json.loads(line) for line in Path(report.rejects[0]).read_text().splitlines())
    assert (first["file"], first["line"], second["line"]) == (path, 2, 3)
    assert first["reason"] == {
        "what": "a value cannot be read as its type", "column": "user", "value": "x", "expected": "int64",
    }  # fmt: skip
    assert first["raw"] == tsv_line("x", 0).rstrip("\n")
    assert second["reason"]["expected"] == "5"


def test_too_many_bad_rows_publish_nothing_and_keep_the_reasons(tmp_path: Path) -> None:
    write_log(tmp_path / "logs" / "a.tsv", tsv_line(1, 0) + tsv_line("x", 0) * 3)
    with pytest.raises(TooManyRejects, match="3 of 4 rows") as caught:
        run(configure(tmp_path, max_reject_share=0.5))
    assert "user: a value cannot be read" in caught.value.what
    assert (tmp_path / "rejects" / "a.tsv.jsonl").exists()
    assert not (tmp_path / "clicks").exists()
    assert list((tmp_path / "clicks.imports" / "staging").iterdir()) == []
    assert run(configure(tmp_path, max_reject_share=0.75)).rows == 1


def test_a_truncated_file_publishes_nothing(tmp_path: Path) -> None:
    two_logs(tmp_path)
    path = tmp_path / "logs" / "a.tsv.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(TruncatedLog) as caught:
        run(configure(tmp_path))
    assert caught.value.where == str(path)
    assert not (tmp_path / "clicks").exists()


def test_files_of_one_name_have_reject_files_of_their_own(tmp_path: Path) -> None:
    good = "".join(tsv_line(n, 0) for n in range(20))
    write_log(tmp_path / "logs" / "1" / "a.tsv", good + "x\n")
    write_log(tmp_path / "logs" / "2" / "a.tsv", good + "y\n")
    report = run(configure(tmp_path, str(tmp_path / "logs" / "*" / "a.tsv")))
    assert len(set(report.rejects)) == 2
    assert report.rejected == 2


@pytest.mark.parametrize("pattern", ["none.tsv", "*.parquet", "empty"])
def test_a_pattern_that_matches_nothing_is_named(tmp_path: Path, pattern: str) -> None:
    two_logs(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoLogFiles) as caught:
        run(configure(tmp_path, str(tmp_path / "logs" / "b.tsv"), str(tmp_path / pattern)))
    assert caught.value.value == str(tmp_path / pattern)


def test_two_imports_into_one_output_do_not_meet(tmp_path: Path) -> None:
    two_logs(tmp_path)
    with ImportLedger(str(tmp_path / "clicks")).locked(), pytest.raises(Busy):
        run(configure(tmp_path))
    assert run(configure(tmp_path)).rows == 6


def test_a_share_outside_0_to_1_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="share"):
        configure(tmp_path, max_reject_share=2)


def test_progress_counts_files(tmp_path: Path) -> None:
    two_logs(tmp_path)
    seen: list[tuple[int, int, str]] = []
    import_logs(configure(tmp_path), ONE_THREAD, progress=lambda done, total, what: seen.append((done, total, what)))
    assert seen[-1] == (2, 2, "reading logs")


def test_step_names_are_a_contract(tmp_path: Path) -> None:
    pipeline = beam.Pipeline(options=pipeline_options(ONE_THREAD))
    ImportJob(log_schema(), "time", tmp_path, tmp_path, "id").build(pipeline, ["{}"])
    labels = [step.full_label for step in pipeline._root_transform().parts]
    assert tuple(labels) == STEPS


def test_the_direct_runner_is_the_one_in_this_process() -> None:
    options = pipeline_options(RunnerOptions()).get_all_options()
    assert options["runner"].endswith("FnApiRunner")
    assert options["direct_running_mode"] == "multi_threading"
    assert pipeline_options(RunnerOptions("DataflowRunner")).get_all_options()["runner"] == "DataflowRunner"
    with pytest.raises(InputError, match="option"):
        RunnerOptions(flags=("region",))


IMPORTER = """
import sys
from pathlib import Path
from tests.pipelines.ingest.test_job import configure, run
import pipelines.outputs.publication as publication
replace, left = publication.os.replace, int(sys.argv[2])
def killed(source, target):
    global left
    left -= 1
    if left < 0:
        publication.os.kill(publication.os.getpid(), 9)
    replace(source, target)
publication.os.replace = killed
run(configure(Path(sys.argv[1])))
"""


@pytest.mark.medium
@pytest.mark.parametrize("renames", [0, 1, 3])
def test_an_import_killed_while_it_publishes_is_finished_by_the_next(tmp_path: Path, renames: int) -> None:
    two_logs(tmp_path)
    whole = ImportConfig((str(tmp_path / "logs"),), log_schema(), str(tmp_path / "whole"), str(tmp_path / "rejects"))
    run(whole)
    # os.replace is one function: the storage's own renames, one a staged file, outcome and journal, count as well.
    killed = subprocess.run([sys.executable, "-c", IMPORTER, str(tmp_path), str(9 + renames)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(list((tmp_path / "clicks.imports").glob("*.pending.json"))) == 1
    assert sum(1 for _ in (tmp_path / "clicks").rglob("*.parquet")) == renames
    report = run(configure(tmp_path))
    assert tree(tmp_path / "clicks") == tree(tmp_path / "whole")
    assert report.rows in (0, 6)


@pytest.mark.slow
def test_an_import_killed_at_any_moment_leaves_all_or_nothing(tmp_path: Path) -> None:
    for number in range(4):
        text = "".join(tsv_line(n, n % 40) for n in range(number, 4000))
        write_log(tmp_path / "logs" / f"{number}.tsv", text)
    whole = ImportConfig((str(tmp_path / "logs"),), log_schema(), str(tmp_path / "whole"), str(tmp_path / "rejects"))
    run(whole)
    for delay_secs in (1.7, 2.1):
        worker = subprocess.Popen([sys.executable, "-c", IMPORTER, str(tmp_path), "1000000"])
        time.sleep(delay_secs)
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        ledger = ImportLedger(str(tmp_path / "clicks"))
        pending = list(ledger.folder.glob("*.pending.json"))
        published = tree(tmp_path / "clicks")
        assert pending or len(published) in (0, 40), os.listdir(ledger.folder)
    run(configure(tmp_path))
    assert tree(tmp_path / "clicks") == tree(tmp_path / "whole")


def test_a_line_that_is_too_long_is_one_row_of_the_reject_file(tmp_path: Path) -> None:
    text = "".join(tsv_line(number, 0) for number in range(30)) + "x" * 5000 + "\n" + tsv_line(31, 0)
    path = write_log(tmp_path / "logs" / "a.tsv.gz", text)
    report = run(configure(tmp_path, longest_line_bytes=4000))
    assert (report.rows, report.rejected) == (31, 1)
    (line,) = (json.loads(line) for line in Path(report.rejects[0]).read_text().splitlines())
    assert line == {
        "file": path, "line": 31, "raw": "x" * 4000,
        "reason": {"what": "the line is too long", "column": "", "value": "5000 bytes", "expected": "at most 4000 bytes"},
    }  # fmt: skip


@pytest.mark.parametrize("longest_line_bytes", [0, -1, 1 << 40])
def test_a_longest_line_that_does_not_fit_is_refused(tmp_path: Path, longest_line_bytes: int) -> None:
    with pytest.raises(InputError, match="longest_line_bytes") as caught:
        configure(tmp_path, longest_line_bytes=longest_line_bytes)
    assert caught.value.value == longest_line_bytes


def test_a_reject_file_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    good = "".join(tsv_line(number, 0) for number in range(30))
    write_log(tmp_path / "logs" / "a.tsv", good + "x\n")
    foreign = tmp_path / "rejects" / "a.tsv.jsonl"
    write_log(foreign, b"\xff no JSON\n")
    report = run(configure(tmp_path))
    assert foreign.read_bytes() == b"\xff no JSON\n"
    assert report.rejected == 1
    assert report.rejects != (str(foreign),)


def test_too_many_bad_times_show_what_was_tried_and_what_would_fit(tmp_path: Path) -> None:
    columns = [{"name": "at", "type": "timestamp", "format": ["%Y-%m-%d", "%s"]}]
    schema = LogSchema.from_document({"format": "csv", "columns": columns, "time": {"column": "at"}})
    write_log(tmp_path / "logs" / "a.csv", "13/07/2017 7:50\n")
    config = ImportConfig((str(tmp_path / "logs"),), schema, str(tmp_path / "clicks"), str(tmp_path / "rejects"))
    with pytest.raises(TooManyRejects) as caught:
        run(config)
    assert caught.value.what.splitlines()[1] == (
        "  example: a.csv, line 1, column at: a value cannot be read as its type, got '13/07/2017 7:50', "
        'expected a time as "%Y-%m-%d" or "%s"; "format": "%d/%m/%Y %H:%M" would fit'
    )
