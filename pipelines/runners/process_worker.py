"""A Beam worker as a process, for machines without containers.

A runner starts ``headrace-beam-worker --id=... --provision_endpoint=...`` (Beam's container contract). The endpoint
provides the job's options and the endpoints of work and logs. ``--environment_type=PROCESS`` with ``process_command``, and a
worker pool's ``--container_executable``, run this program. Packages are not staged: Headrace is installed on the machine.
The process ends with its runner.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any

import grpc
from apache_beam.portability.api import beam_provision_api_pb2, beam_provision_api_pb2_grpc, endpoints_pb2
from apache_beam.runners.worker import sdk_worker_main
from google.protobuf import json_format, text_format

_PROVISION_SECS = 60.0


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The flags of the contract that are needed before the first request; others are ignored."""
    parser = argparse.ArgumentParser(prog="headrace-beam-worker", allow_abbrev=False,
                                     description="A Beam worker in this process; started by a runner.")  # fmt: skip
    parser.add_argument("--id", required=True, help="the runner's name for this worker")
    parser.add_argument("--provision_endpoint", required=True, help="host:port that provides the job's options")
    parser.add_argument("--control_endpoint", default="", help="host:port that assigns work")
    parser.add_argument("--logging_endpoint", default="", help="host:port that receives the log")
    return parser.parse_known_args(arguments)[0]


def worker_environment(chosen: argparse.Namespace, provided: Any) -> dict[str, str]:
    """The environment variables of Beam's worker.

    ``provided`` is the runner's ``ProvisionInfo``; endpoints among the arguments override its own.
    """
    endpoints = {
        "CONTROL_API_SERVICE_DESCRIPTOR": chosen.control_endpoint or provided.control_endpoint.url,
        "LOGGING_API_SERVICE_DESCRIPTOR": chosen.logging_endpoint or provided.logging_endpoint.url,
        "STATUS_API_SERVICE_DESCRIPTOR": provided.status_endpoint.url,
    }
    described = {
        name: text_format.MessageToString(endpoints_pb2.ApiServiceDescriptor(url=url))
        for name, url in endpoints.items()
        if url
    }
    return {
        "WORKER_ID": chosen.id,
        "PIPELINE_OPTIONS": json_format.MessageToJson(provided.pipeline_options),
        "RUNNER_CAPABILITIES": " ".join(provided.runner_capabilities),
        **described,
    }


def provision_info(endpoint: str, worker: str) -> Any:
    """Request the job's options of the runner. Raises :class:`grpc.RpcError` when it does not answer."""
    with grpc.insecure_channel(endpoint) as channel:
        service = beam_provision_api_pb2_grpc.ProvisionServiceStub(channel)
        request = beam_provision_api_pb2.GetProvisionInfoRequest()
        return service.GetProvisionInfo(request, timeout=_PROVISION_SECS, metadata=[("worker_id", worker)]).info


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a worker until the runner ends it."""
    chosen = parse_arguments(arguments)
    os.environ.update(worker_environment(chosen, provision_info(chosen.provision_endpoint, chosen.id)))
    sdk_worker_main.main(None)


if __name__ == "__main__":
    main()
