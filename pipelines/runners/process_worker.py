"""An SDK worker as a process, for runners on machines without containers: what the container's boot program is there.

A runner starts ``headrace-beam-worker --id=... --provision_endpoint=...`` (Beam's container contract), and everything
else is asked of that endpoint: the job's options, where work comes from, where the log goes. That is what
``--environment_type=PROCESS`` with ``process_command``, and a worker pool's ``--container_executable``, run. Packages
are not staged: Headrace is installed on the machine. The process ends when its runner does, or is gone.
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
    """The contract's flags that must be known before the runner is asked; it may give more."""
    parser = argparse.ArgumentParser(prog="headrace-beam-worker", allow_abbrev=False,
                                     description="A Beam worker in this process; started by a runner.")  # fmt: skip
    parser.add_argument("--id", required=True, help="the name by which the runner knows this worker")
    parser.add_argument("--provision_endpoint", required=True, help="host:port that knows the job")
    parser.add_argument("--control_endpoint", default="", help="host:port that hands out work")
    parser.add_argument("--logging_endpoint", default="", help="host:port that takes the log")
    return parser.parse_known_args(arguments)[0]


def worker_environment(chosen: argparse.Namespace, provided: Any) -> dict[str, str]:
    """The variables by which Beam's worker is told what it is.

    ``provided``: the runner's ``ProvisionInfo``; endpoints among the arguments go before its own.
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
    """What the runner says of the job. Raises :class:`grpc.RpcError` when it does not answer."""
    with grpc.insecure_channel(endpoint) as channel:
        service = beam_provision_api_pb2_grpc.ProvisionServiceStub(channel)
        request = beam_provision_api_pb2.GetProvisionInfoRequest()
        return service.GetProvisionInfo(request, timeout=_PROVISION_SECS, metadata=[("worker_id", worker)]).info


def main(arguments: Sequence[str] | None = None) -> None:
    """Be a worker until the runner says that it is over."""
    chosen = parse_arguments(arguments)
    os.environ.update(worker_environment(chosen, provision_info(chosen.provision_endpoint, chosen.id)))
    sdk_worker_main.main(None)


if __name__ == "__main__":
    main()
