"""The runners and pipeline options that Beam takes, and the refusal of any other, before work is begun.

Beam itself drops an option that it does not know, with a line in its log: a misspelt ``--flink_master`` would run the
job somewhere else. Here every option must be one of Beam's, or one that the runner's job server declares.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

from pipelines.runners.job_server import DECLARED
from transforms.errors import InputError, nearest

#: The runners that docs/runners.md tells how to use. Beam's others, and ``module.Class`` of one's own, are taken too.
RUNNERS = ("DirectRunner", "DataflowRunner", "FlinkRunner", "SparkRunner", "PortableRunner")
#: Runners that give a job to a server by Beam's job API. The server may declare options of its own.
PORTABLE_RUNNERS = ("FlinkRunner", "SparkRunner", "PortableRunner")


def check_runner_name(runner: str) -> None:
    """Raise :class:`InputError` for a name that is neither one of Beam's runners nor ``module.Class``."""
    known = {*RUNNERS, *StandardOptions.KNOWN_RUNNER_NAMES}
    if runner not in known and "." not in runner:
        raise InputError("Beam has no such runner", where="--runner", value=runner,
                         allowed=", ".join(RUNNERS) + ", or module.Class",
                         next_step=f"the nearest names: {nearest(runner, known)}")  # fmt: skip


def is_dataflow(runner: str) -> bool:
    """Whether this is Dataflow's runner, by its name or as ``module.Class``."""
    return runner.rpartition(".")[2] == "DataflowRunner"


def parse_options(runner: str, flags: Sequence[str], declared: Iterable[str] | None = None) -> dict[str, Any]:
    """The value of every option of Beam's, as ``flags`` (``--name=value``, ``--name value``, ``--flag``) set it.

    ``declared``: names that the job server takes beside Beam's own. Without it they are those of the runner's released
    job server; and where ``flags`` name a running server (``--job_endpoint``), which declares its own, unknown options
    pass, until :func:`~pipelines.runners.remote.require_runnable` asks that server.

    Raises :class:`InputError` for an option that nobody knows, a value that the option does not take, a word that is
    no option, and a runner named twice.
    """
    parser = _parser(DECLARED.get(runner, ()) if declared is None else declared)
    found, unknown = parser.parse_known_args(list(flags))
    options: dict[str, Any] = vars(found)
    if options["runner"] is not None:
        raise InputError("the runner is named twice", where="Beam pipeline options", value=f"--runner={options['runner']}",
                         next_step="name it by Headrace's own option --runner, before the --")  # fmt: skip
    open_ended = declared is None and runner in PORTABLE_RUNNERS and options["job_endpoint"]
    if unknown and not (open_ended and unknown[0].startswith("--")):
        _refuse(unknown[0], sorted(parser._option_string_actions))
    return options


def _refuse(word: str, known: Sequence[str]) -> NoReturn:
    if not word.startswith("--"):
        raise InputError("not a Beam pipeline option", value=word, allowed="--name=value, --name value or --name",
                         next_step="options of Beam's stand after a --")  # fmt: skip
    name = word.partition("=")[0]
    raise InputError("Beam has no such pipeline option", value=name, allowed=nearest(name, known),
                     next_step="see Beam's documentation of pipeline options, or docs/runners.md")  # fmt: skip


def _parser(declared: Iterable[str]) -> Any:
    """Beam's own parser of every option of every loaded class of options; it raises instead of ending the process."""
    parsers: list[Any] = []
    PipelineOptions([]).get_all_options(add_extra_args_fn=parsers.append)
    parser = parsers[0]
    for name in declared:
        if f"--{name}" not in parser._option_string_actions:
            parser.add_argument(f"--{name}", nargs="?")

    def refuse(message: str) -> NoReturn:
        raise InputError("a Beam pipeline option is not as Beam takes it", value=message)

    parser.error = refuse
    return parser
