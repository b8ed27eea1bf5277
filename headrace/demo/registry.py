"""The demo of each log format."""

from __future__ import annotations

from headrace.demo.real_logs import REAL_LOGS
from headrace.demo.sample_log import SampleLogConfig
from headrace.demo.scripts import DemoScript, sample_script
from transforms.errors import InputError, nearest


def script(log_format: str, sample: SampleLogConfig) -> DemoScript:
    """The demo of a format. Raises :class:`InputError` for an unknown format."""
    if log_format == "sample":
        return sample_script(sample)
    if log_format not in REAL_LOGS:
        raise InputError("--format must be a known log format", value=log_format, allowed=", ".join(["sample", *REAL_LOGS]),
                         next_step=f"did you mean {nearest(log_format, REAL_LOGS, 1)}? other logs: headrace table import")  # fmt: skip
    return REAL_LOGS[log_format]
