"""Full passes with Beam and tf.Transform's analyzers over small tables, compared with plain Python."""

from __future__ import annotations

import hashlib
import math
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import select

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import transforms.expressions.expression as hr
from pipelines.analysis.analyze import Analyzed, analyze_model
from pipelines.analysis.contributions import known_contributions, read_contribution
from pipelines.analysis.values import BATCH_EVENTS, Part, PartitionWork, read_batches
from pipelines.fragments.work import ComponentList
from pipelines.runners.runner import RunnerOptions
from tests.pipelines.analysis.tf_transform import vocabularies
from tests.pipelines.scenes import open_home
from transforms.errors import DataError
from transforms.expressions.model import Model
from transforms.graphs.graph import component_document
from transforms.ranges import between
from warehouse.catalog import schema
from warehouse.errors import ChangedData
from warehouse.files.artifacts import read_artifact
from warehouse.files.own_files import list_home
from warehouse.matching.solve import read_solution
from warehouse.matching.submit import submit_model
from warehouse.tables.manifests import table_manifests
from warehouse.tables.register import register_table
from warehouse.warehouse import Warehouse

TWO, THREE = between("2026-01-01", "2026-01-03"), between("2026-01-01", "2026-01-04")
WORDS = ["red", "blue", "", "shoe", "line\nbreak", "né", "B" * 70, "hat", "boot", "\x00"]
ROWS = 300


def day(number: int, seed: int = 0) -> pa.Table:
    random = np.random.default_rng([seed, number])
    ranks = np.minimum(random.zipf(1.4, (ROWS, 4)) - 1, len(WORDS) - 1)
    tags = [None if i % 11 == 0 else [WORDS[rank] for rank in row[: i % 5]] for i, row in enumerate(ranks)]
    price = np.round(random.normal(10, 3, ROWS), 2)
    price[:4] = [math.nan, math.inf, -math.inf, -0.0]
    return pa.table({
        "tags": pa.array(tags, pa.list_(pa.string())),
        "item": pa.array(random.integers(-20, 20, ROWS), mask=random.random(ROWS) < 0.1),
        "price": pa.array(price, mask=random.random(ROWS) < 0.2),
        "clicked": pa.array([rank[0] % 2 == 0 for rank in ranks], mask=random.random(ROWS) < 0.1),
    })  # fmt: skip


def write_day(root: Path, number: int, table: pa.Table) -> Path:
    folder = root / f"date=2026-01-{number:02d}"
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / "part.parquet", row_group_size=120)
    return folder / "part.parquet"


def model(over: Any) -> Model:
    made = Model("m", client="search", label="clicked", table="log")
    tags, item, price = hr.ragged("tags", "string"), hr.int64("item"), hr.float64("price")
    made.input("tags", tags.vocabulary_ids(over=over, min_frequency=2))
    made.input("top", tags.vocabulary_ids(over=over, top_k=3))
    made.input("item", item.vocabulary_ids(over=over, oov_buckets=10))
    made.input("informative", tags.vocabulary_ids(over=over, label=hr.boolean("clicked"), min_diff_from_avg=-1))
    made.input("bucket", price.quantile_buckets(5, over=over))
    made.input("z", price.z_score(over=over))
    made.input("range", price.min_max_over(over=over))
    return made


def values_of(warehouse: Warehouse, one: Analyzed) -> list[Any]:
    return read_artifact(warehouse.storage, one.artifact).to_pylist()


def ranked(counts: Counter[str]) -> list[str]:
    return [term for term, _ in sorted(counts.items(), key=lambda pair: (pair[1], pair[0].encode()), reverse=True)]


class Scene:
    """A log of two days analyzed; then a third day, with the first two gone from disk."""

    def __init__(self, root: Path) -> None:
        self.log, self.home = root / "log", root / "home"
        files = [write_day(self.log, number, day(number)) for number in (1, 2)]
        with open_home(self.home) as warehouse:
            register_table(warehouse, "log", str(self.log))
            self.first = analyze_model(warehouse, model(TWO), options=RunnerOptions(workers=1))
            write_day(self.log, 3, day(3))
            register_table(warehouse, "log", str(self.log))
            kept = [file.rename(file.with_suffix(".gone")) for file in files]
            self.second = analyze_model(warehouse, model(THREE), options=RunnerOptions(workers=3))
            for file in kept:
                file.rename(file.with_suffix(".parquet"))


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("analyze"))


def artifacts(analyzed: tuple[Analyzed, ...]) -> dict[tuple[str, str, int], str]:
    return {(one.operator, one.expression, i): one.artifact for i, one in enumerate(analyzed)}


def everything(name: str) -> pa.ChunkedArray:
    return pa.concat_tables([day(1), day(2)])[name]


def of(scene: Scene, position: int) -> list[Any]:
    with open_home(scene.home) as warehouse:
        return values_of(warehouse, scene.first[position])


def test_every_partition_is_read_once(scene: Scene) -> None:
    assert [one.operator for one in scene.first] == [
        "vocabulary_ids", "vocabulary_ids", "vocabulary_ids", "labelled_vocabulary_ids", "quantile_buckets",
        "standardize_over", "min_max_over",
    ]  # fmt: skip
    assert {(one.partitions, one.partitions_read, one.fragments_read, one.rows_read) for one in scene.first} == {
        (2, 2, 2, 2 * ROWS)
    }


def test_extending_by_a_day_reads_that_day_alone(scene: Scene) -> None:
    # The files of the other days were not there while it ran.
    assert {(one.partitions, one.partitions_read, one.rows, one.rows_read) for one in scene.second} == {
        (3, 1, 3 * ROWS, ROWS)
    }


def test_an_extended_analysis_equals_one_from_scratch_bit_for_bit(scene: Scene, tmp_path: Path) -> None:
    with open_home(tmp_path / "home") as warehouse:
        register_table(warehouse, "log", str(scene.log))
        scratch = analyze_model(warehouse, model(THREE), options=RunnerOptions(workers=4))
    assert {one.partitions_read for one in scratch} == {3}
    assert artifacts(scratch) == artifacts(scene.second)


#: What releases found that ran tf.Transform's analyzers in the loop. Models name artifacts by digest.
GOLDEN = [
    "586e6f81fd82601c3cedd71a7ab5f2b9f68548aac03dc434d945c02375468fd7",
    "012ac28e97a2293413a3e99a9f8c246318ee4aa19ab7a13f1b49503188f75dc4",
    "d1f885b98b621ad54a8bdd712c92ee2727b6b6d240f05e0043608078ad7455c0",
    "cca18efb56d62d6d9d3d45489a1fb07e68c8fb16bde29470f371cee34ffb36c0",
    "30c912c44db88f7e0efd18d4974896652c9e1890eebf77ab0683b30319c49ba9",
    "84810107e427d338c5cac7a52a67012f1d25df194507377733450c7d06da2508",
    "1eecc85b4fc414a20146e0c8edb4512afb768b883fc8b06379a2f72515fa655a",
]
#: The beginnings of their keys in the catalog: an analysis that an older release made is known.
GOLDEN_KEYS = {"81259ec587905d13", "06a1a8294c4a16bd", "7b7c9b5dcdefb514", "a3f47282bfb60c6d", "22bc30a8b512d56e",
               "6a07eef06442c885", "a1de5b20edeef80a"}  # fmt: skip


def test_artifacts_and_their_keys_stay_what_they_were(scene: Scene) -> None:
    assert [one.artifact for one in scene.second] == GOLDEN
    with open_home(scene.home) as warehouse, warehouse.catalog.read() as connection:
        kept = {key[:16] for key in connection.execute(select(schema.analyses.c.key)).scalars()}
    assert kept >= GOLDEN_KEYS


@pytest.mark.slow
def test_tensorflow_is_not_needed() -> None:
    program = "import sys, pipelines.analysis.analyze, tfx_bsl.sketches; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_vocabularies_equal_a_plain_count(scene: Scene) -> None:
    tags = Counter(tag for row in everything("tags").to_pylist() for tag in row or ())
    assert of(scene, 0) == ranked(Counter({tag: count for tag, count in tags.items() if count >= 2}))
    assert of(scene, 1) == ranked(tags)[:3]
    items = Counter(str(item) for item in everything("item").to_pylist() if item is not None)
    assert of(scene, 2) == ranked(items)


@pytest.mark.slow
def test_a_vocabulary_by_label_equals_tf_transforms(scene: Scene) -> None:
    import tensorflow as tf

    rows = zip(everything("tags").to_pylist(), everything("clicked").to_pylist(), strict=True)
    events = [{"x": list(dict.fromkeys(tags or ())), "y": int(label)} for tags, label in rows if label is not None]
    spec = {"x": tf.io.VarLenFeature(tf.string), "y": tf.io.FixedLenFeature([], tf.int64),
            "row": tf.io.FixedLenFeature([], tf.int64)}  # fmt: skip
    events = [event | {"row": number} for number, event in enumerate(events)]
    assert of(scene, 3) == vocabularies(events, spec, {"v": {"x": "x", "labels": "y", "min_diff_from_avg": None}})["v"]


def test_statistics_of_numbers_leave_out_what_is_not_finite(scene: Scene) -> None:
    price = everything("price").drop_null().to_numpy()
    price = price[np.isfinite(price)]
    mean, deviation = of(scene, 5)
    assert mean == pytest.approx(price.mean(), rel=1e-12)
    assert deviation == pytest.approx(price.std(), rel=1e-12)
    assert of(scene, 6) == [price.min(), price.max()]
    assert of(scene, 4) == pytest.approx(np.quantile(price, [0.2, 0.4, 0.6, 0.8]), abs=0.05)


def test_the_model_is_submitted_and_its_inputs_have_buckets(scene: Scene) -> None:
    with open_home(scene.home) as warehouse:
        register_table(warehouse, "log", str(scene.log))
        solution = read_solution(warehouse, submit_model(warehouse, model(TWO)).model)
    sizes = [one.size for one in scene.first]
    buckets = {item.name: getattr(item.type, "buckets", None) for item in solution.inputs}
    assert buckets == {"tags": sizes[0] + 1, "top": 4, "item": sizes[2] + 10, "informative": sizes[3] + 1, "bucket": 5,
                       "z": None, "range": None}  # fmt: skip


def test_what_is_sought_changes_nothing_that_has_to_be_read(scene: Scene) -> None:
    made = Model("n", client="search", label="clicked", table="log")
    made.input("other", hr.ragged("tags", "string").vocabulary_ids(over=TWO, top_k=1))
    made.input("deciles", hr.float64("price").quantile_buckets(10, over=TWO))
    with open_home(scene.home) as warehouse:
        analyzed = analyze_model(warehouse, made)
        assert [(one.partitions_read, one.size) for one in analyzed] == [(0, 1), (0, 9)]
        assert analyze_model(warehouse, made) == ()


def small(over: Any = TWO) -> Model:
    made = Model("small", client="search", label="clicked", table="log")
    made.input("z", hr.float64("price").z_score(over=over).quantile_buckets(3, over=over))
    return made


@pytest.mark.slow
def test_a_changed_fragment_reads_its_partition_again_and_an_analysis_may_follow_another(tmp_path: Path) -> None:
    for number in (1, 2):
        write_day(tmp_path / "log", number, day(number))
    with open_home(tmp_path / "home") as warehouse:
        register_table(warehouse, "log", str(tmp_path / "log"))
        before = analyze_model(warehouse, small())
        assert [one.operator for one in before] == ["standardize_over", "quantile_buckets"]
        assert "standardize(price" in before[1].expression
        changed = day(2).set_column(0, "tags", day(7)["tags"])  # a column that is not analyzed
        write_day(tmp_path / "log", 2, changed)
        register_table(warehouse, "log", str(tmp_path / "log"))
        assert analyze_model(warehouse, small()) == ()
        write_day(tmp_path / "log", 2, day(2, seed=1))
        register_table(warehouse, "log", str(tmp_path / "log"))
        after = analyze_model(warehouse, small())
        assert [(one.partitions, one.partitions_read) for one in after] == [(2, 1), (2, 2)]
        written = list_home(warehouse.storage)
        assert not written.own["analysis files"], "what is done is said while a job runs"
        assert written.own["contributions"]
        assert written.foreign == (), "garbage collection knows all that an analysis writes"


def test_a_file_that_changed_behind_our_back_is_one_clear_error_and_leaves_nothing(tmp_path: Path) -> None:
    file = write_day(tmp_path / "log", 1, day(1))
    with open_home(tmp_path / "home") as warehouse:
        register_table(warehouse, "log", str(tmp_path / "log"))
        pq.write_table(day(5), file, row_group_size=120)
        with pytest.raises(ChangedData, match="changed since it was registered"):
            analyze_model(warehouse, small())
        assert warehouse.storage.list(f"{warehouse.storage.home}/analysis") == ()


def test_a_range_without_values_is_one_clear_error(tmp_path: Path) -> None:
    write_day(tmp_path / "log", 1, day(1).set_column(2, "price", pa.nulls(ROWS, pa.float64())))
    with open_home(tmp_path / "home") as warehouse:
        register_table(warehouse, "log", str(tmp_path / "log"))
        with pytest.raises(DataError) as caught:
            analyze_model(warehouse, small())
    assert "standardize_over(price)" in caught.value.where


def test_a_constant_column_has_no_min_max_and_the_error_names_the_operator(tmp_path: Path) -> None:
    write_day(tmp_path / "log", 1, day(1).set_column(2, "price", pa.array([5.0] * ROWS)))
    model = Model("constant", client="search", label="clicked", table="log")
    model.input("price", hr.float64("price").min_max_over(over=between("2026-01-01", "2026-01-02")))
    with open_home(tmp_path / "home") as warehouse:
        register_table(warehouse, "log", str(tmp_path / "log"))
        with pytest.raises(DataError, match="the least number of min_max must be below the greatest") as caught:
            analyze_model(warehouse, model)
    assert "min_max_over(price) over" in caught.value.where


def test_an_error_in_a_worker_is_logged_once_and_not_by_beam(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_day(tmp_path / "log", 1, day(1).append_column("class", pa.array([-1] * ROWS)))
    model = Model("negative", client="search", label="clicked", table="log")
    words = hr.ragged("tags", "string")
    model.input("words", words.vocabulary_ids(label=hr.int64("class"), over=between("2026-01-01", "2026-01-02")))
    with open_home(tmp_path / "home") as warehouse:
        register_table(warehouse, "log", str(tmp_path / "log"))
        with pytest.raises(DataError, match="a label must be a class"):
            analyze_model(warehouse, model)
    assert not [record for record in caplog.records if record.name.startswith("apache_beam")]


def test_damaged_contributions_are_not_used(scene: Scene) -> None:
    with open_home(scene.home) as warehouse:
        storage = warehouse.storage
        file = next(scene.home.glob("analysis/sums-*/*/*.arrow"))
        content, contribution = file.read_bytes(), file.stem
        assert known_contributions(storage, [contribution]) == {contribution}
        for damaged in (content[:-1], content[:-1] + b"?", content[:40], b"", hashlib.sha256(b"{").digest() + b"{"):
            file.write_bytes(damaged)
            assert not known_contributions(storage, [contribution])
            with pytest.raises(DataError, match="must be intact"):
                read_contribution(storage, contribution)
        file.write_bytes(content)
        assert known_contributions(storage, [contribution]) == {contribution}


def test_batches_do_not_depend_on_fragments(tmp_path: Path) -> None:
    table = pa.concat_tables([day(number) for number in range(1, 40)])
    expression = component_document(hr.ragged("tags", "string").node)
    seen = []
    for rows in (5000, 1000):
        root = tmp_path / str(rows)
        (root / "date=2026-01-01").mkdir(parents=True)
        pq.write_table(table, root / "date=2026-01-01" / "part.parquet", row_group_size=rows)
        with open_home(tmp_path / f"home{rows}") as warehouse:
            warehouse.config = replace(warehouse.config, fragment_rows=rows)
            register_table(warehouse, "log", str(root))
            with warehouse.catalog.read() as connection:
                (manifest,) = table_manifests(connection, "log")
            work = PartitionWork("p", manifest.fragments, (Part("c", "vocabulary_ids", expression),))
            listed = ComponentList()
            assert PartitionWork.from_json(work.to_json(listed), listed.to_json()) == work
            seen.append([batch.lists for (batch,) in read_batches(warehouse.storage.home, work)])
    assert [len(lists) for lists in seen[0]] == [BATCH_EVENTS, BATCH_EVENTS, len(table) - 2 * BATCH_EVENTS]
    assert seen[0] == seen[1]
