"""Check the requirements of a job on other machines before any work starts.

Workers of a remote runner open the home by its name. A bucket is reachable from everywhere, a folder only where it is
mounted, and never from a service or a container.
"""

from __future__ import annotations

import re
from typing import Any

from pipelines.runners import dataflow
from pipelines.runners.job_server import fetch_server_options
from pipelines.runners.options import PORTABLE_RUNNERS, is_dataflow, parse_options
from pipelines.runners.runner import RunnerOptions, pipeline_options
from transforms.errors import InputError

_LOCAL_FLINK = ("[local]", "[auto]")
_LOCAL_SPARK = re.compile(r"local(\[.+\])?")


def require_runnable(options: RunnerOptions, *places: str) -> None:
    """Raise :class:`InputError` if a job with these options cannot start or cannot reach one of ``places``.

    ``places`` are folders and ``gs://`` locations that workers read or write. The only request is to ``--job_endpoint``, if
    given, for its options.
    """
    if options.runner == "DirectRunner":
        return
    given = parse_options(options.runner, options.flags)
    endpoint = str(given["job_endpoint"] or "")
    if options.runner == "PortableRunner" and not endpoint:
        raise InputError("PortableRunner must have a job server", where="--runner PortableRunner",
                         allowed="--job_endpoint=host:port", next_step="headrace ... --runner PortableRunner -- "
                         "--job_endpoint=host:port")  # fmt: skip
    if options.runner in PORTABLE_RUNNERS and endpoint and endpoint != "embed":
        parse_options(options.runner, options.flags, fetch_server_options(endpoint))
    require_reach(options, *places)
    if is_dataflow(options.runner):
        dataflow.check(dataflow.dataflow_options(options.flags))
    _require_valid(options)


def require_reach(options: RunnerOptions, *places: str) -> None:
    """Raise :class:`InputError` if this runner's workers cannot reach one of ``places``, independent of mounts."""
    folders = [place for place in places if "://" not in place]
    if options.runner == "DirectRunner" or not folders:
        return
    if is_dataflow(options.runner):
        raise InputError("Dataflow's workers cannot reach a folder of this machine", where=f"--runner {options.runner}",
                         value=folders[0], allowed="a place in a bucket: gs://bucket/path",
                         next_step="keep home and tables in a bucket: docs/storage.md, docs/dataflow.md")  # fmt: skip
    if in_containers(options.runner, parse_options(options.runner, options.flags)):
        raise InputError("workers in containers cannot reach a folder of this machine",
                         where=f"--runner {options.runner}", value=folders[0],
                         allowed="a place in a bucket, or workers outside of containers",
                         next_step="give --environment_type=PROCESS, EXTERNAL or LOOPBACK: docs/runners.md")  # fmt: skip


def in_containers(runner: str, given: dict[str, Any]) -> bool:
    """Whether Beam would start this runner's workers in containers, its default except on one machine."""
    if runner not in PORTABLE_RUNNERS or given["environment_type"] not in (None, "DOCKER"):
        return False
    if given["environment_type"] is None and runner == "FlinkRunner":
        return given["flink_master"] not in _LOCAL_FLINK
    if given["environment_type"] is None and runner == "SparkRunner":
        return not _LOCAL_SPARK.fullmatch(given["spark_master_url"])
    return True


def _require_valid(options: RunnerOptions) -> None:
    """Raise what Beam itself would refuse."""
    from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator
    from apache_beam.runners.runner import create_runner

    try:
        runner = create_runner(options.runner)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            "Beam cannot load this runner", where="--runner", value=options.runner, allowed=str(error)
        ) from error
    refusals = PipelineOptionsValidator(pipeline_options(options), runner).validate()
    if refusals:
        raise InputError("Beam rejects the options of this runner", where=f"--runner {options.runner}",
                         value=" ".join(refusals), allowed="Beam's pipeline options for this runner",
                         next_step="docs/runners.md lists the required options")  # fmt: skip
