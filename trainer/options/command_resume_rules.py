"""Which options of ``headrace train`` that are no training options may have another value when a run goes on, and why. Pure.

Commits have none of them: they say by which processes, and on which machines, the rest of a run is trained. The command checks those that may
not change against what commits do have: data, inputs and the plan of tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from trainer.options.resume_rules import Change, ResumeRule


def _any_time(reason: str, only: str = "") -> ResumeRule:
    return ResumeRule(Change.ANY_TIME, reason, only=only)


def _from_here(reason: str, only: str = "") -> ResumeRule:
    return ResumeRule(Change.FROM_HERE, reason, only=only)


_DATA = "partitions and events that are new are trained, and those of the checkpoint must still be there"
_TESTS = "tested events are not trained"
_DIVIDED = "hosts divide each batch, so another number trains the same steps, and adds their gradients in another order; places of hashed and pruned tables are divided among hosts"
_COMMITS = "it says when there is a commit; with a staleness the steps after it miss no update"
_WHEN_LEFT = "it says when an epoch ends because of a notice"
_WAITS = "it says how long training waits, and for what"
_SPREAD = "rows are loaded from the checkpoint, wherever they are to be"
_BY_PLAN = "equal bits by any plan; but parts of a checkpoint are those of one plan"
_ONE_PLAN = "left out, or given to a run whose rows are in one process; else by headrace ckpt reshard"
_REACHED = "it says how servers are reached"
_DEVICES = "checkpoints are the same for all devices, whose sums differ by rounding"
_ROUNDED = "values are rounded on their way, and none of a checkpoint"
_BESIDE = "it is beside training"
_MACHINES = "it says where processes run"

#: By parameter, in the order of the command's options.
COMMAND_RULES: Mapping[str, ResumeRule] = MappingProxyType({
    "version": _from_here("weights are those of the inputs and the label", "a version with the same inputs and label"),
    "start": _from_here(_DATA, "more partitions"),
    "end": _from_here(_DATA, "more partitions"),
    "test_end": _any_time(_TESTS),
    "evaluate_commits": _any_time(_TESTS),
    "table_version": _from_here(_DATA),
    "baseline": _any_time(_TESTS),
    "accept_changed": _from_here("it says whether trained events that have changed are trained again"),
    "train_changed_labels": _from_here("it says whether trained events that have changed are trained again"),
    "batch_files": _any_time("batches in files are those that are cut without them"),
    "catch_up_secs": _from_here("it says when initial training ends; a run that has caught up stays so"),
    "job_dir": _any_time("commits are in the bucket; only a hold is lost with the folder"),
    "home": _any_time("the content of events is compared, not its place"),
    "hosts": _from_here(_DIVIDED),
    "readers": _any_time("any reader delivers the same events"),
    "epoch_secs": _from_here(_COMMITS),
    "epoch_events": _from_here(_COMMITS),
    "epoch_steps": _from_here(_COMMITS),
    "least_hosts": _from_here(_DIVIDED),
    "grace_secs": _any_time(_WHEN_LEFT),
    "notice_file": _any_time(_WHEN_LEFT),
    "notice_http": _any_time(_WHEN_LEFT),
    "notice_metadata": _any_time(_WHEN_LEFT),
    "follow": _any_time(_WAITS),
    "caught_up_hosts": _from_here(_DIVIDED),
    "caught_up_readers": _any_time("any reader delivers the same events"),
    "caught_up_epoch_secs": _from_here(_COMMITS),
    "wait_for_memos": _any_time(_WAITS),
    "shuffle_events": _from_here("units that are planned keep their windows; those that are planned next have the new ones"),
    "poll_secs": _any_time(_WAITS),
    "plan": _any_time(_BY_PLAN, _ONE_PLAN),
    "towers": _any_time(_BY_PLAN, _ONE_PLAN),
    "hosts_per_machine": _from_here("it orders the sums of dense gradients of each step"),
    "dense_values": _from_here(_ROUNDED),
    "tower_sums": _from_here("it orders the sums of rows of each step"),
    "servers": _from_here("checkpoints are the same with and without servers, and so are bits, but for places of hashed and pruned tables, which are divided among servers"),
    "least_servers": _any_time(_SPREAD),
    "spare_servers": _any_time(_SPREAD),
    "scale_servers_from": _any_time(_SPREAD),
    "server_threads": _any_time("threads divide updates, and change no bit"),
    "embedding_workers": _any_time("workers have no rows, and bits are those without them"),
    "server_token_file": _any_time(_REACHED),
    "server_ca": _any_time(_REACHED),
    "server_updates": _from_here("a checkpoint has all updates of its steps"),
    "wire_ids": _any_time("both encodings are lossless"),
    "wire_values": _from_here(_ROUNDED),
    "export": _any_time(_BESIDE),
    "export_quantize": _any_time(_BESIDE),
    "tensorboard": _any_time(_BESIDE),
    "mlflow": _any_time(_BESIDE),
    "tpu": _from_here(_DEVICES),
    "max_ids": _any_time("programs are compiled for it; more ids are an error, and none is left out"),
    "max_unique_ids": _any_time("programs are compiled for it; more ids are an error, and none is left out"),
    "device": _from_here(_DEVICES),
    "metrics_address": _any_time(_BESIDE),
    "metrics_targets": _any_time(_BESIDE),
    "anonymous_metrics": _any_time(_BESIDE),
    "metrics_name": _any_time(_BESIDE),
    "metrics_run": _any_time(_BESIDE),
    "launcher": _any_time(_MACHINES),
    "output": _any_time(_MACHINES),
    "job_name": _any_time(_MACHINES),
    "topology": _from_here(_DEVICES),
    "accelerator": _from_here(_DEVICES),
    "images": _any_time(_MACHINES),
    "spot": _any_time(_MACHINES),
    "namespace": _any_time(_MACHINES),
    "queue": _any_time(_MACHINES),
    "priority": _any_time(_MACHINES),
    "zone": _any_time(_MACHINES),
    "project": _any_time(_MACHINES),
    "listen": _any_time(_MACHINES),
    "token_file": _any_time(_MACHINES),
    "jobset": _any_time(_MACHINES),
    "reader_set": _any_time(_MACHINES),
    "server_set": _any_time(_MACHINES),
    "service_account": _any_time(_MACHINES),
    "keep_jobset": _any_time(_MACHINES),
})  # fmt: skip
