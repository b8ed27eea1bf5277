"""The metrics of a controller, and of the job that it controls, from the job's status."""

from __future__ import annotations

from collections import Counter

from trainer.job.control.messages import JobStatus
from trainer.scheduling.events import RoleKind
from trainer.scheduling.transitions import JobState
from transforms.metrics.declarations import durations, gauge
from transforms.metrics.families import Family, by_label, single
from transforms.metrics.instruments import Histogram, LabelledHistograms

MESSAGES = durations("headrace_controller_message_seconds", "Time from the arrival of a message until the controller has applied it: of a role, a status, or an event.", "kind")  # fmt: skip
STEPS = durations("headrace_controller_step_seconds", "Time of one step of the controller: events are logged, followed and answered.")  # fmt: skip
PUBLISHES = durations("headrace_controller_publish_seconds", "Time of one publication of a commit that succeeded.")
STATE = gauge("headrace_controller_job_state", "1 for the state of the job, 0 for the others.", "state")
HELD = gauge("headrace_controller_job_held", "1 while an error holds the job until a person releases it.")
MEMBERS = gauge("headrace_controller_members", "Processes of the job that were not ordered to leave, by kind.", "kind")
WANTED = gauge("headrace_controller_wanted_members", "Processes that the job needs now, by kind.", "kind")
AWAY = gauge("headrace_controller_away_members", "Hosts and servers that left after a preemption notice.")
SILENT = gauge("headrace_controller_silent_seconds", "Longest time since the last message of a member, by kind.", "kind")  # fmt: skip
ATTEMPT = gauge("headrace_controller_attempt", "The number of the last attempt.")
EPOCHS = gauge("headrace_controller_committed_epochs", "Epochs of the last commit.")
UNITS = gauge("headrace_controller_next_unit", "The first work unit that is not committed.")
PLANNED = gauge("headrace_controller_planned_units", "The work units of the plan.")
RESTARTS = gauge("headrace_controller_restarts", "Attempts that failed since the last commit.")
READER_FAILURES = gauge("headrace_controller_reader_failures", "Readers that failed since the last commit.")
COMMITTED = gauge("headrace_controller_committed_timestamp_seconds", "When this controller published its last commit; absent before the first.")  # fmt: skip
STALENESS = gauge("headrace_controller_data_staleness_seconds", "From the newest committed events to now; absent while unknown.")  # fmt: skip
LOG = gauge("headrace_controller_log_bytes", "Length of the log of events.")
PROBLEM = gauge("headrace_controller_has_problem", "1 while an error of the log or of a publication is retried.")
SERVERS = gauge("headrace_controller_used_servers", "Parameter servers with tables, of a job that scales them.")
METRICS = (MESSAGES, STEPS, PUBLISHES, STATE, HELD, MEMBERS, WANTED, AWAY, SILENT, ATTEMPT, EPOCHS, UNITS, PLANNED, RESTARTS, READER_FAILURES, COMMITTED, STALENESS, LOG, PROBLEM, SERVERS)  # fmt: skip


class ControllerMetrics:
    """What a controller records.

    Attributes:
        messages: seconds by kind of message.
        steps, publishes: seconds.
    """

    def __init__(self) -> None:
        self.messages = LabelledHistograms()
        self.steps, self.publishes = Histogram(), Histogram()

    def families(self) -> tuple[Family, ...]:
        """The recorded times."""
        return (
            by_label(MESSAGES, self.messages.readings()),
            single(STEPS, self.steps.reading()),
            single(PUBLISHES, self.publishes.reading()),
        )


def job_families(status: JobStatus) -> tuple[Family, ...]:
    """The metrics of a job with this status."""
    members = Counter(str(one.role.kind) for one in status.members if not one.is_leaving)
    silent: dict[str, float] = {}
    for one in status.members:
        silent[str(one.role.kind)] = max(one.silent_secs, silent.get(str(one.role.kind), 0.0))
    wanted = {str(RoleKind.HOST): float(status.wanted_hosts), str(RoleKind.READER): float(status.wanted_readers)}
    found = [
        by_label(STATE, {str(one).lower(): float(one is status.state) for one in JobState}),
        single(HELD, float(status.hold is not None)),
        by_label(MEMBERS, {kind: float(members[kind]) for kind in {*members, *wanted}}),
        by_label(WANTED, wanted),
        single(AWAY, len(status.away)),
        by_label(SILENT, silent),
        single(ATTEMPT, status.attempt),
        single(EPOCHS, status.commit_epochs),
        single(UNITS, status.next_unit),
        single(PLANNED, status.planned_units),
        single(RESTARTS, status.restarts),
        single(READER_FAILURES, status.reader_failures),
        single(LOG, status.log_bytes),
        single(PROBLEM, float(bool(status.problem))),
    ]
    if status.published_secs is not None:
        found.append(single(COMMITTED, status.published_secs))
    if status.staleness_secs is not None:
        found.append(single(STALENESS, status.staleness_secs))
    if status.most_servers:
        found.append(single(SERVERS, status.used_servers))
    return tuple(found)
