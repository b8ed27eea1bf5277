"""Dataflow's names, options and refusals before a job is sent."""

from __future__ import annotations

import re
import uuid

import pytest
from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator
from hypothesis import given
from hypothesis import strategies as st

from pipelines.runners.dataflow import (
    DataflowOptions,
    check,
    dataflow_options,
    default_flags,
    job_flags,
    job_name,
    label_value,
)
from pipelines.runners.options import is_dataflow
from transforms.errors import InputError

GIVEN = ("--project=my-project", "--region=europe-west4", "--temp_location=gs://bucket/tmp")


@pytest.mark.parametrize(("runner", "expected"), [
    ("DataflowRunner", True), ("apache_beam.runners.DataflowRunner", True),
    ("apache_beam.runners.dataflow.dataflow_runner.DataflowRunner", True),
    ("DirectRunner", False), ("FlinkRunner", False), ("TestDataflowRunner", False),
])  # fmt: skip
def test_beams_names_of_the_runner_are_known(runner: str, expected: bool) -> None:
    assert is_dataflow(runner) is expected


@given(st.text(), st.uuids())
def test_every_worker_gets_a_job_name_and_labels_that_dataflow_takes(worker: str, job: uuid.UUID) -> None:
    name = job_name(worker, job.hex)
    assert re.fullmatch(PipelineOptionsValidator.JOB_PATTERN, name)
    assert len(name) <= 63
    assert name.endswith(job.hex[:12])
    assert re.fullmatch("[-_a-z0-9]{0,63}", label_value(worker))


def test_a_job_name_identifies_its_worker() -> None:
    assert job_name("Host-7.Example_4711", "0123456789abcdef") == "headrace-host-7-example-4711-0123456789ab"
    assert label_value("Host-7.Example_4711") == "host-7_example_4711"


def test_a_given_name_is_kept_and_given_labels_are_added_to() -> None:
    asked = dataflow_options([*GIVEN, "--job_name=nightly", "--labels=team=search"])
    flags = job_flags(asked, "worker", "abc")
    assert flags == ("--labels=headrace_worker=worker", "--labels=headrace_job=abc")


def test_packages_are_fetched_by_workers_or_travel_with_the_job() -> None:
    usual, private = DataflowOptions(), DataflowOptions(private=True)
    assert "--requirements_cache=skip" in default_flags(usual)
    assert "--requirements_cache=skip" in default_flags(private)
    assert (usual.wheels_travel, private.wheels_travel) == (False, True)


@pytest.mark.parametrize("said", [{"requirements_cache": "/var/cache/pip"}, {"requirements_file": "mine.txt"}])
def test_what_the_user_says_about_packages_is_left_to_beam(said: dict[str, str]) -> None:
    private = DataflowOptions(private=True, **said)
    assert "--requirements_cache=skip" not in default_flags(private)
    assert not private.wheels_travel


def test_options_are_read_as_beam_reads_them() -> None:
    asked = dataflow_options([*GIVEN, "--no_use_public_ips", "--worker_harness_container_image=image:1",
                              "--template_location", "gs://bucket/job.json"])  # fmt: skip
    assert (asked.project, asked.region, asked.temp_location) == ("my-project", "europe-west4", "gs://bucket/tmp")
    assert (asked.private, asked.image, asked.template_location) == (True, "image:1", "gs://bucket/job.json")
    assert not dataflow_options(GIVEN).private


@pytest.mark.parametrize("missing", range(3))
def test_each_option_that_is_needed_is_asked_for(missing: int) -> None:
    given = [flag for at, flag in enumerate(GIVEN) if at != missing]
    with pytest.raises(InputError, match="required options of Dataflow are missing") as caught:
        check(dataflow_options(given))
    name = GIVEN[missing].partition("=")[0]
    assert caught.value.value == name
    assert caught.value.allowed.startswith(f"{name}=")
    assert "docs/dataflow.md" in caught.value.next_step


def test_one_error_names_everything_that_is_missing() -> None:
    with pytest.raises(InputError) as caught:
        check(DataflowOptions())
    assert caught.value.value == "--project, --region, --temp_location"


@pytest.mark.parametrize("place", ["/tmp", "gs://bucket", "gs:///folder", "s3://bucket/tmp", "gs://Bucket/tmp"])
@pytest.mark.parametrize("option", ["temp_location", "staging_location"])
def test_what_is_no_folder_of_a_bucket_is_refused(option: str, place: str) -> None:
    with pytest.raises(InputError, match="must name a folder in a bucket") as caught:
        check(dataflow_options([*GIVEN, f"--{option}={place}"]))
    assert (caught.value.where, caught.value.value) == (f"--{option}", place)


def test_a_dry_run_is_refused_for_a_template() -> None:
    with pytest.raises(InputError, match="--dry_run must not be given") as caught:
        check(dataflow_options([*GIVEN, "--dry_run=True"]))
    assert "--template_location" in caught.value.allowed
