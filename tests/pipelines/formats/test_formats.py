"""The four formats, on tiny files of their layout, and on the real files if they exist."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

from pipelines.errors import NoLogFiles, OutputTaken, TooManyRejects, UnknownFormat
from pipelines.formats import FormatOptions, prepare
from pipelines.formats.movielens import TRAIN_HOURS, pseudo_times, title_years
from pipelines.ingest.report import ImportReport
from transforms.errors import InputError

GLOBO_HEADER = (
    "user_id,session_id,session_start,session_size,click_article_id,click_timestamp,click_environment,"
    "click_deviceGroup,click_os,click_country,click_region,click_referrer_type\n"
)
START_MS = 1_506_826_800_000


def globo_files(folder: Path, hours: int = 4, clicks: int = 60) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(5)
    for hour in range(hours):
        lines = [GLOBO_HEADER]
        for at in np.sort(random.integers(0, 5_000_000, clicks)):
            user, article = random.integers(0, 20), min(random.geometric(0.2), 12)
            start = START_MS + hour * 3_600_000
            lines.append(f"{user},{user * 10 + hour},{start},2,{article * 100},{start + at},4,1,17,1,25,2\n")
        path = folder / f"clicks_hour_{hour:03d}.csv.gz"
        path.write_bytes(gzip.compress("".join(lines).encode(), mtime=0))
    return str(folder)


def run(name: str, source: str, output: Path, **options: object) -> tuple[ImportReport, pa.Table]:
    report = prepare(name, source, str(output), FormatOptions(**options))  # type: ignore[arg-type]
    return report, ds.dataset(output, format="parquet").to_table()


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.parquet")}


def test_globo_pairs_every_warm_click_with_a_negative(tmp_path: Path) -> None:
    report, table = run("globo", globo_files(tmp_path / "raw"), tmp_path / "out", window_hours=2)
    counts = report.counts
    assert report.rows == table.num_rows == counts["positives"] + counts["negatives"]
    assert counts["clicks"] + counts["clicks_after_last_hour"] == 240
    assert counts["positives"] + counts["cold_clicks"] == counts["clicks"]
    assert counts["positives"] > 100
    assert pc.sum(table.column("clicked")).as_py() == counts["positives"]
    assert pc.min(table.column("article_clicks_recent")).as_py() > 0
    assert table.column("article_age_hours").null_count == 0
    assert "date=2017-10-01/hour=04" in report.partitions
    assert table.schema.field("history").type.value_type == pa.int64()


def test_globo_shares_a_clicks_context_with_its_negatives(tmp_path: Path) -> None:
    _, table = run("globo", globo_files(tmp_path / "raw"), tmp_path / "out", negatives_per_positive=2.0)
    context = ["time", "user_id", "session_id", "history", "user_clicks", "secs_since_last_click"]
    rows = table.sort_by("time").to_pylist()
    for row in rows:
        if not row["clicked"]:
            clicks = [r for r in rows if r["clicked"] and all(r[name] == row[name] for name in context)]
            assert clicks
            assert row["article_id"] not in row["history"]
            assert row["article_id"] not in [click["article_id"] for click in clicks]
        assert (row["last_article_id"] is None) == (row["history"] == [])
        assert row["history"][:1] == [a for a in [row["last_article_id"]] if a is not None]


def test_a_row_does_not_depend_on_later_files(tmp_path: Path) -> None:
    source = globo_files(tmp_path / "raw", hours=5)
    _, whole = run("globo", source, tmp_path / "whole", keep_cold=True)
    _, part = run("globo", source, tmp_path / "part", keep_cold=True, limit=3)
    # Sessions of later files start after the third hour, so what comes before is the same stream.
    end = pa.scalar((START_MS + 3 * 3_600_000) * 1000, pa.timestamp("us", "UTC"))
    before = whole.filter(pc.less(whole.column("time"), end))
    assert before.sort_by("time").equals(part.sort_by("time"))
    assert part.num_rows > 200


def test_the_same_options_give_the_same_bytes_and_a_second_call_writes_nothing(tmp_path: Path) -> None:
    source = globo_files(tmp_path / "raw")
    first, _ = run("globo", source, tmp_path / "one")
    run("globo", source, tmp_path / "two")
    assert tree(tmp_path / "one") == tree(tmp_path / "two")
    again, _ = run("globo", source, tmp_path / "one")
    assert (again.rows, again.counts, again.partitions) == (first.rows, first.counts, first.partitions)
    assert (again.written_files, again.skipped_files) == (0, 4)
    assert tree(tmp_path / "one") == tree(tmp_path / "two")


def test_other_options_need_another_folder(tmp_path: Path) -> None:
    source = globo_files(tmp_path / "raw")
    run("globo", source, tmp_path / "out")
    before = tree(tmp_path / "out")
    with pytest.raises(OutputTaken) as caught:
        run("globo", source, tmp_path / "out", seed=1)
    assert caught.value.where == str(tmp_path / "out")
    assert tree(tmp_path / "out") == before


def test_bad_rows_of_a_known_log_are_rejected(tmp_path: Path) -> None:
    source = globo_files(tmp_path / "raw")
    bad = tmp_path / "raw" / "clicks_hour_004.csv"
    bad.write_text(GLOBO_HEADER + "1,2\n")
    report, _ = run("globo", source, tmp_path / "out")
    assert (report.rejected, len(report.rejects)) == (1, 1)
    assert Path(report.rejects[0]).read_text().count("wrong number of columns") == 1
    with pytest.raises(TooManyRejects):
        run("globo", source, tmp_path / "strict", max_reject_share=0.0)
    assert not (tmp_path / "strict").exists()


def test_unknown_formats_and_wrong_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnknownFormat) as caught:
        prepare("movielense", str(tmp_path), str(tmp_path / "out"))
    assert "movielens" in caught.value.next_step
    with pytest.raises(UnknownFormat, match="files of the globo log"):
        prepare("globo", str(tmp_path), str(tmp_path / "out"))
    with pytest.raises(NoLogFiles):
        prepare("globo", str(tmp_path / "none"), str(tmp_path / "out"))
    with pytest.raises(InputError, match="negatives_per_positive must be from 0"):
        FormatOptions(negatives_per_positive=-1)
    with pytest.raises(InputError, match="hour, day"):
        FormatOptions(partition_by="week")  # type: ignore[arg-type]


def test_partitions_may_be_days(tmp_path: Path) -> None:
    source = globo_files(tmp_path / "raw")
    hours, by_hour = run("globo", source, tmp_path / "hours")
    days, by_day = run("globo", source, tmp_path / "days", partition_by="day")
    assert len(hours.partitions) > 1
    assert days.partitions == ("date=2017-10-01",)
    assert by_day.sort_by("time").equals(by_hour.sort_by("time"))
    with pytest.raises(OutputTaken):
        run("globo", source, tmp_path / "hours", partition_by="day")


def test_pseudo_times_keep_each_users_order_and_hold_out_the_last_ten() -> None:
    user = np.repeat([7, 9], [30, 12])
    seq = np.concatenate([np.arange(30)[::-1] + 1, np.arange(12) + 1])
    times = pseudo_times(user, seq)
    hours = (times - times.min() // 3_600_000_000 * 3_600_000_000) // 3_600_000_000
    for one in (7, 9):
        own = times[user == one][np.argsort(seq[user == one])]
        assert np.all(np.diff(own) > 0)
    start = int(datetime(2000, 5, 1, tzinfo=UTC).timestamp()) * 1_000_000
    hours = (times - start) // 3_600_000_000
    assert np.bincount(hours[user == 7], minlength=168)[TRAIN_HOURS:].tolist() == [1] * 10
    assert np.sort(hours[user == 9]).tolist() == [39, 118, *range(158, 168)]


def test_years_are_read_from_titles() -> None:
    titles = pa.array(["Toy Story (1995)", "Seven (Se7en) (1995)", "No year", "1984 ", None])
    assert title_years(titles).to_pylist() == [1995, 1995, None, None, None]


def movielens_file(folder: Path) -> str:
    folder.mkdir(parents=True)
    random = np.random.default_rng(3)
    lines = ["split\tuser_id\tseq\tgender\tage\toccupation\tzip\tmovie_id\ttitle\tgenres\n"]
    for user in range(1, 31):
        for seq, movie in enumerate(random.permutation(80)[: 20 + user], start=1):
            lines.append(
                f"train\t{user}\t{seq}\tF\t25\t4\t0{user:04d}\t{movie}\tMovie {movie} (19{movie + 10})\tDrama|War\n"
            )
    (folder / "ml1m_joined.tsv").write_text("".join(lines))
    return str(folder)


def test_movielens_holds_out_the_last_ten_of_every_user(tmp_path: Path) -> None:
    report, table = run("movielens", movielens_file(tmp_path / "raw"), tmp_path / "out", keep_cold=True)
    hours = (np.asarray(table.column("time").cast(pa.int64())) // 3_600_000_000) - 957_139_200 // 3600
    positive = np.asarray(table.column("clicked")) == 1
    users = np.asarray(table.column("user_id"))
    held_out = positive & (hours >= TRAIN_HOURS)
    assert np.bincount(users[held_out])[1:].tolist() == [10] * 30
    assert report.partitions[-1] == "date=2000-05-07/hour=23"
    row = table.slice(0, 1).to_pylist()[0]
    assert row["genres"] == ["Drama", "War"]
    assert row["year"] == int(row["title"][-5:-1])
    assert row["zip"].startswith("0")


def test_criteo_spreads_lines_over_hours(tmp_path: Path) -> None:
    line = "\t".join(["1", *(str(n) if n % 3 else "" for n in range(13)), *(f"{n:08x}" for n in range(25)), ""])
    (tmp_path / "train.txt").write_text((line + "\n") * 1200)
    report, table = run("criteo", str(tmp_path), tmp_path / "out")
    assert (report.rows, len(report.partitions)) == (1200, 3)
    assert table.column("integer_1").null_count == 1200
    assert table.column("integer_2").to_pylist()[:2] == [1, 1]
    assert table.column("category_1").to_pylist()[0] == "00000000"
    assert table.column("category_26").null_count == 1200


def obd_files(folder: Path) -> str:
    folder.mkdir(parents=True)
    affinities = ",".join(f"user-item_affinity_{n}" for n in range(80))
    features = ",".join(f"user_feature_{n}" for n in range(4))
    lines = [f",timestamp,item_id,position,click,propensity_score,{features},{affinities}\n"]
    for n in range(20):
        values = ",".join(str(float(item == n)) for item in range(80))
        lines.append(f"{n},2019-11-{24 + n % 3} 00:00:17.004101+00:00,{n},1,{n % 2},0.1,a,b,c,d,{values}\n")
    (folder / "bts_all.csv.gz").write_bytes(gzip.compress("".join(lines).encode(), mtime=0))
    items = [",item_id,item_feature_0,item_feature_1,item_feature_2,item_feature_3\n"]
    items += [f"{n},{n},{n / 10},x{n},y,z\n" for n in range(80)]
    (folder / "item_context.csv").write_text("".join(items))
    return str(folder)


def test_obd_joins_what_is_known_of_the_item(tmp_path: Path) -> None:
    report, table = run("obd", obd_files(tmp_path / "raw"), tmp_path / "out")
    assert report.partitions == ("date=2019-11-24", "date=2019-11-25", "date=2019-11-26")
    assert report.counts == {"clicks": 10}
    for row in table.to_pylist():
        assert row["item_feature_1"] == f"x{row['item_id']}"
        assert row["affinity"] == 1.0
        assert len(row["affinities"]) == 80
        assert row["policy"] == "bts"


@pytest.mark.medium
@pytest.mark.parametrize(
    ("name", "folder", "limit", "rows", "clicked"),
    [("criteo", "criteo", None, 10_000, 2182), ("obd", "obd", None, 20_000, 80), ("globo", "globo", 6, None, None),
     ("movielens", "ml1m", 200, None, None)],
)  # fmt: skip
def test_the_real_files_are_read_without_a_reject(
    tmp_path: Path, shared_data: Path, name: str, folder: str, limit: int | None, rows: int | None, clicked: int | None
) -> None:
    report, table = run(name, str(shared_data / folder), tmp_path / "out", limit=limit)
    assert report.rejected == 0
    assert report.rows == table.num_rows
    if rows is not None:
        assert (report.rows, pc.sum(table.column("clicked")).as_py()) == (rows, clicked)
    else:
        assert report.counts["negatives"] == pytest.approx(report.counts["positives"], rel=0.1)
        assert report.rows > 5_000
