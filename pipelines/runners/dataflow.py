"""Dataflow: its required options, the names of its jobs, and its errors.

Given options reach Beam unchanged; :func:`default_flags` and :func:`job_flags` add those that were not given. Only the
job's client calls Google's APIs; workers read and write the bucket and use no catalog.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipelines.errors import JobFailed, JobRefused
from pipelines.runners.options import is_dataflow, parse_options
from transforms.errors import InputError, StorageError

PAGE = "docs/dataflow.md"
AFTER = "the options after --"

_FOLDER_OF_A_BUCKET = re.compile(r"gs://[a-z0-9][-_a-z0-9.]+[a-z0-9]/[^\r\n]*")
_EXAMPLES = {"--project": "PROJECT_ID", "--region": "europe-west4", "--temp_location": "gs://BUCKET/tmp"}
_LONGEST = 63
_JOB_CHARACTERS = 12


@dataclass(frozen=True, slots=True)
class DataflowOptions:
    """The options of Beam that are used here; empty if not given.

    ``image`` is the workers' container image, with Headrace; ``private`` workers have no public address.
    """

    project: str = ""
    region: str = ""
    temp_location: str = ""
    staging_location: str = ""
    template_location: str = ""
    job_name: str = ""
    image: str = ""
    requirements_file: str = ""
    requirements_cache: str = ""
    private: bool = False
    dry_run: bool = False

    @property
    def folders(self) -> dict[str, str]:
        """The folders that the client writes to, by option."""
        named = {"--temp_location": self.temp_location, "--staging_location": self.staging_location}
        return {option: place for option, place in named.items() if place}

    @property
    def wheels_travel(self) -> bool:
        """Whether the job brings the workers' packages: without a public address they may reach no package index."""
        return self.private and not self.requirements_cache and not self.requirements_file


def dataflow_options(flags: Sequence[str]) -> DataflowOptions:
    """Parse ``flags``. Raises :class:`InputError` for invalid ones."""
    given = parse_options("DataflowRunner", flags)
    return DataflowOptions(
        project=given["project"] or "",
        region=given["region"] or "",
        temp_location=given["temp_location"] or "",
        staging_location=given["staging_location"] or "",
        template_location=given["template_location"] or "",
        job_name=given["job_name"] or "",
        image=given["sdk_container_image"] or given["worker_harness_container_image"] or "",
        requirements_file=given["requirements_file"] or "",
        requirements_cache=given["requirements_cache"] or "",
        private=given["use_public_ips"] is False,
        dry_run=bool(given["dry_run"]),
    )


def check(options: DataflowOptions) -> None:
    """Refuse missing or invalid options before anything is leased or sent.

    Without a folder, Beam itself would create a bucket. Raises :class:`InputError`.
    """
    _require_client()
    given = {"--project": options.project, "--region": options.region, "--temp_location": options.temp_location}
    missing = [name for name, value in given.items() if not value]
    if missing:
        raise InputError("required options of Dataflow are missing", where=AFTER, value=", ".join(missing),
                         allowed=" ".join(f"{name}={_EXAMPLES[name]}" for name in missing),
                         next_step=f"headrace work --runner DataflowRunner -- --project=... ; see {PAGE}")  # fmt: skip
    for option, place in options.folders.items():
        if not _FOLDER_OF_A_BUCKET.fullmatch(place):
            raise InputError("the option must name a folder in a bucket", where=option, value=place, allowed="gs://BUCKET/folder",
                             next_step="name a bucket that you and the workers' service account may write to")  # fmt: skip
    if options.dry_run:
        raise InputError("--dry_run must not be given: it writes no job", where=AFTER, value="--dry_run=True",
                         allowed="--template_location=gs://BUCKET/job.json, or a file of this machine",
                         next_step="write the job as a template")  # fmt: skip


def _require_client() -> None:
    try:
        import apache_beam.runners.dataflow.internal.apiclient  # noqa: F401 - Beam loads it only to submit
    except ImportError as error:
        raise InputError("Dataflow's client is not installed", value=str(error), allowed="apache-beam[gcp]",
                         next_step="pip install 'headrace[dataflow]'") from error  # fmt: skip


def default_flags(options: DataflowOptions) -> tuple[str, ...]:
    """Flags of every job: each file is uploaded once, and required packages are not downloaded for every job.

    A given ``--requirements_cache`` overrides the latter; see :attr:`DataflowOptions.wheels_travel`.
    """
    left_to_beam = options.requirements_cache or (options.private and options.requirements_file)
    return ("--enable_artifact_caching", *(() if left_to_beam else ("--requirements_cache=skip",)))


def job_flags(options: DataflowOptions, worker: str, job: str) -> tuple[str, ...]:
    """The job's name, unless one was given, and labels to find it and its costs by."""
    name = () if options.job_name else (f"--job_name={job_name(worker, job)}",)
    return (*name, f"--labels=headrace_worker={label_value(worker)}", f"--labels=headrace_job={label_value(job)}")


def job_name(worker: str, job: str) -> str:
    """A unique name in Dataflow's syntax: lower-case letters, digits and hyphens, at most 63."""
    short = _plain(job, "-")[:_JOB_CHARACTERS].strip("-")
    middle = _plain(worker, "-")[: _LONGEST - len("headrace--") - _JOB_CHARACTERS].strip("-")
    return "-".join(part for part in ("headrace", middle, short) if part)


def label_value(text: str) -> str:
    """``text`` as the value of a label: lower-case letters, digits, ``_`` and ``-``, at most 63."""
    return _plain(text, "_")[:_LONGEST]


def _plain(text: str, instead: str) -> str:
    return re.sub(r"[^-_a-z0-9]+" if instead == "_" else r"[^a-z0-9]+", instead, text.lower()).strip(instead)


def check_buckets(options: DataflowOptions, home: str) -> None:
    """Raise :class:`StorageError`, with the option, if a bucket that the client writes to does not exist."""
    from warehouse.storage.gcs_client import open_client, status_of, translated_gcs_errors
    from warehouse.storage.locations import parse_gcs

    client = open_client(parse_gcs(home).settings)
    for option, place in options.folders.items():
        bucket = parse_gcs(place).bucket
        with translated_gcs_errors(place, "look for the bucket of"):
            try:
                found = client.lookup_bucket(bucket)
            except Exception as error:
                if status_of(error) != 403:
                    raise
                raise StorageError("this account has no permission to look up the bucket", where=option, value=place,
                                   allowed="roles/storage.objectUser and roles/storage.legacyBucketReader on it",
                                   next_step=f"gcloud storage buckets add-iam-policy-binding gs://{bucket} ...; "
                                   f"see {PAGE}") from error  # fmt: skip
        if found is None:
            raise StorageError("there is no such bucket", where=option, value=place, allowed="a bucket that exists",
                               next_step=f"gcloud storage buckets create gs://{bucket} "
                               f"--location={options.region}")  # fmt: skip


@contextlib.contextmanager
def translate_errors(runner: str) -> Iterator[None]:
    """Translate exceptions of Dataflow's client; other runners' exceptions pass.

    Raises :class:`JobRefused` when no job started, :class:`JobFailed` when it failed, :class:`StorageError` when files
    could not be uploaded.
    """
    if not is_dataflow(runner):
        yield
        return
    from apache_beam.runners.dataflow.dataflow_runner import DataflowRuntimeException
    from apache_beam.runners.dataflow.internal.apiclient import DataflowJobAlreadyExistsError
    from google.api_core.exceptions import GoogleAPICallError
    from google.auth.exceptions import GoogleAuthError

    try:
        yield
    except DataflowRuntimeException as error:
        raise JobFailed("the Dataflow job failed", where=f"job {error.result.job_id()}",
                        value=str(error)[:2000], allowed="state DONE",
                        next_step="see the job's log in the console; its tasks were released, and finished memos "
                        "are kept") from error  # fmt: skip
    except DataflowJobAlreadyExistsError as error:
        raise JobRefused("the name of a Dataflow job must not be that of a running job", where="--job_name", value=str(error)[:500],
                         allowed="a name that no running job has",
                         next_step="leave out --job_name: each job then has a unique name") from error  # fmt: skip
    except (GoogleAPICallError, GoogleAuthError) as error:
        raise JobRefused("Dataflow rejected the job", where="dataflow.googleapis.com", value=str(error)[:2000],
                         allowed="the API enabled, roles/dataflow.developer, and quota in the region",
                         next_step=f"set up the project with the commands of {PAGE}") from error  # fmt: skip
    except OSError as error:
        raise StorageError("the job's files could not be uploaded to the bucket", where="--staging_location",
                           value=str(error)[:500], allowed="a bucket that this account may write to",
                           next_step="grant roles/storage.objectUser and roles/storage.legacyBucketReader on "
                           "it") from error  # fmt: skip
