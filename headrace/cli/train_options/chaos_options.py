"""Which options of ``headrace train`` a job under faults has, and why it has no others."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from headrace.cli.options.launchers import OF_LAUNCHERS, option_name
from headrace.cli.options.option_groups import values_of_group
from headrace.cli.train_options.training import TrainOptions
from transforms.errors import InputError

_ON_OTHERS = "faults are in processes of this machine"
_OTHER_HOSTS = "the job would go on with other hosts or servers than the undisturbed one, whose sums have another order"
_OWN_NOTICES = "chaos gives the notices"
_NO_CHAIN = "links would be those of a run that is only a proof"

#: By parameter, why a training with the option is no job for faults.
REFUSED: Final[Mapping[str, str]] = MappingProxyType({
    "follow": "the job would not end",
    "wait_for_memos": "the job would wait before it begins",
    "least_hosts": _OTHER_HOSTS,
    "least_servers": _OTHER_HOSTS,
    "scale_servers_from": "the number of servers would follow measured times, which faults change",
    "spare_servers": "no fault is for a server without tables",
    "notice_file": _OWN_NOTICES,
    "notice_http": _OWN_NOTICES,
    "notice_metadata": _OWN_NOTICES,
    "launcher": _ON_OTHERS,
    **dict.fromkeys(OF_LAUNCHERS, _ON_OTHERS),
    "tpu": "the TPUs of a machine belong to one process, so a fault in it ends all hosts",
    "max_ids": "it goes with --tpu",
    "max_unique_ids": "it goes with --tpu",
    "device": "sums on a GPU are not equal bit for bit from one attempt to the next",
    "export": _NO_CHAIN,
    "export_quantize": _NO_CHAIN,
    "save_as": "a run file is that of headrace train",
})  # fmt: skip

_NO_TEST = "no events are tested"
_NO_COPY = "figures of a proof are no figures of a model"
_OWN_TOKEN = "servers that chaos starts have the token of the run, and no TLS"
_NO_METRICS = "the screen counts faults, attempts and commits"

#: By parameter, why an option changes nothing of a job under faults; a run file may have it.
UNUSED: Final[Mapping[str, str]] = MappingProxyType({
    "test_end": _NO_TEST,
    "evaluate_commits": _NO_TEST,
    "baseline": _NO_TEST,
    "catch_up_secs": "one phase is trained",
    "job_dir": "the runs are in --folder of headrace chaos",
    "grace_secs": "each notice names its seconds",
    "poll_secs": "the job waits for no data and no memos",
    "server_token_file": _OWN_TOKEN,
    "server_ca": _OWN_TOKEN,
    "tensorboard": _NO_COPY,
    "mlflow": _NO_COPY,
    "metrics_address": _NO_METRICS,
    "metrics_targets": _NO_METRICS,
    "anonymous_metrics": _NO_METRICS,
    "metrics_name": _NO_METRICS,
    "metrics_run": _NO_METRICS,
})  # fmt: skip

#: The options that a job under faults has.
PASSED: Final = (
    "version", "start", "end", "table_version", "accept_changed", "train_changed_labels", "batch_files", "config", "run_dir", "home", "hosts", "readers",
    "epoch_secs", "epoch_events", "epoch_steps", "caught_up_hosts", "caught_up_readers", "caught_up_epoch_secs", "shuffle_events", "plan", "towers",
    "hosts_per_machine", "dense_values", "tower_sums", "servers", "server_threads", "embedding_workers", "server_updates", "wire_ids", "wire_values",
)  # fmt: skip


def check_passed(values: Mapping[str, Any]) -> None:
    """Raise :class:`InputError` for an option that is given and refused. ``values``: of all options, by parameter."""
    given = _given(values)
    for name, reason in REFUSED.items():
        if name in given:
            raise InputError("chaos cannot run a training with this option", where=option_name(name), value=str(values[name])[:200],
                             allowed=f"none: {reason}", next_step="leave this option out")  # fmt: skip


def unused_options(options: TrainOptions) -> tuple[str, ...]:
    """A sentence for each option that is given and changes nothing."""
    given = _given(values_of_group(options))
    return tuple(f"{option_name(name)} is not used: {reason}" for name, reason in UNUSED.items() if name in given)


def _given(values: Mapping[str, Any]) -> set[str]:
    """The options with other values than those that are not given."""
    return {
        name
        for name, value in values_of_group(TrainOptions("")).items()
        if (values[name] or None) != (value or None)  # an option that may be repeated is [] or None without a value
    }
