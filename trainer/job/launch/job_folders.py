"""The local folder of a job whose run is in a bucket: commits are in the bucket, all other files of the job are here."""

from __future__ import annotations

import hashlib
import re

from warehouse.storage.locations import parse_gcs

#: The folder of such job folders in a local home.
BUCKET_JOBS = "bucket-jobs"

_MOST_READABLE = 60
_OTHER = re.compile(r"[^A-Za-z0-9._-]+")


def job_folder_name(run_dir: str) -> str:
    """The name of the job folder of a run in a bucket: readable, and one for each run.

    Settings of the store do not count, but its endpoint: it may have other buckets.
    """
    location = parse_gcs(run_dir)
    digest = hashlib.sha256(f"{location.settings.endpoint}\n{location.plain}".encode()).hexdigest()
    readable = _OTHER.sub("-", f"{location.bucket}-{location.name}").strip("-.")[:_MOST_READABLE]
    return f"{readable}-{digest[:10]}"
