"""Check runners and pipeline options against those of Beam, before any work starts.

Beam itself drops an unknown option with a line in its log: with a misspelt ``--flink_master`` the job would run elsewhere.
Here every option must be one of Beam's, or one that the runner's job server declares.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from pipelines.runners.job_server import DECLARED
from transforms.errors import InputError, nearest

#: The runners of docs/runners.md. Beam's others, and any ``module.Class``, are accepted too.
RUNNERS = ("DirectRunner", "DataflowRunner", "FlinkRunner", "SparkRunner", "PortableRunner")
#: Runners that submit a job to a server by Beam's job API. The server may declare options.
PORTABLE_RUNNERS = ("FlinkRunner", "SparkRunner", "PortableRunner")


def check_runner_name(runner: str) -> None:
    """Raise :class:`InputError` unless the name is one of Beam's runners or ``module.Class``."""
    if runner in RUNNERS:
        return
    from apache_beam.options.pipeline_options import StandardOptions

    known = {*RUNNERS, *StandardOptions.KNOWN_RUNNER_NAMES}
    if runner not in known and "." not in runner:
        raise InputError("Beam has no such runner", where="--runner", value=runner,
                         allowed=", ".join(RUNNERS) + ", or module.Class",
                         next_step=f"the nearest names: {nearest(runner, known)}")  # fmt: skip


def is_dataflow(runner: str) -> bool:
    """Whether this is Dataflow's runner, by its name or as ``module.Class``."""
    return runner.rpartition(".")[2] == "DataflowRunner"


def parse_options(runner: str, flags: Sequence[str], declared: Iterable[str] | None = None) -> dict[str, Any]:
    """The value of every Beam option, as set by ``flags`` (``--name=value``, ``--name value``, ``--flag``).

    ``declared`` are the options of the job server, by default those of the runner's released one. If ``flags`` name a
    running server (``--job_endpoint``), unknown options pass, until :func:`~pipelines.runners.remote.require_runnable`
    requests that server's options.

    Raises :class:`InputError` for an unknown option, an invalid value, a word that is no option, and a second runner.
    """
    parser = _parser(DECLARED.get(runner, ()) if declared is None else declared)
    found, unknown = parser.parse_known_args(list(flags))
    options: dict[str, Any] = vars(found)
    if options["runner"] is not None:
        raise InputError("the runner must be named once", where="Beam pipeline options", value=f"--runner={options['runner']}",
                         next_step="use only Headrace's option --runner, before the --")  # fmt: skip
    open_ended = declared is None and runner in PORTABLE_RUNNERS and options["job_endpoint"]
    if unknown and not (open_ended and unknown[0].startswith("--")):
        _refuse(unknown[0], sorted(parser._option_string_actions))
    return options


def _refuse(word: str, known: Sequence[str]) -> NoReturn:
    if not word.startswith("--"):
        raise InputError("a Beam pipeline option must start with --", value=word, allowed="--name=value, --name value or --name",
                         next_step="Beam's options follow a --")  # fmt: skip
    name = word.partition("=")[0]
    raise InputError("Beam has no such pipeline option", value=name, allowed=nearest(name, known),
                     next_step="see Beam's documentation of pipeline options, or docs/runners.md")  # fmt: skip


def _parser(declared: Iterable[str]) -> Any:
    """Beam's parser of all loaded classes of options; it raises and does not end the process."""
    from apache_beam.options.pipeline_options import PipelineOptions

    parsers: list[Any] = []
    PipelineOptions([]).get_all_options(add_extra_args_fn=parsers.append)
    parser = parsers[0]
    for name in declared:
        if f"--{name}" not in parser._option_string_actions:
            parser.add_argument(f"--{name}", nargs="?")

    def refuse(message: str) -> NoReturn:
        raise InputError("a Beam pipeline option is invalid", value=message)

    parser.error = refuse
    return parser
