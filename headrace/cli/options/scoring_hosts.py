"""The hosts that score together, as ``headrace evaluate --hosts`` names them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from headrace.cli.options.tokens import read_token_file
from trainer.errors import HostKilled
from transforms.child_process import module_command
from transforms.errors import InputError

if TYPE_CHECKING:
    from trainer.job.scoring.shared_scoring import ScoringChannels

_MOST_HOSTS, _MOST_ATTEMPTS = 1024, 3
_Found = TypeVar("_Found")

Hosts = Annotated[
    str,
    typer.Option(
        "--hosts",
        metavar="N|HOST:PORT,...",
        help="Score with N processes of this machine, or with one on each of several machines, started with its --rank there; each has its share of the tables.",
        show_default=False,
    ),
]
Rank = Annotated[
    int,
    typer.Option("--rank", help="The place of this machine among the addresses of --hosts, from 0 on.", show_default=False),
]  # fmt: skip
HostsToken = Annotated[
    str, typer.Option("--token-file", help="The token of all --hosts on several machines.", show_default=False)
]
Meeting = Annotated[str, typer.Option("--meeting", hidden=True, help="Where processes of one machine meet.")]
HeldOut = Annotated[
    int, typer.Option("--held-out", hidden=True, help="Score the held-out events of the run after this pass.")
]
TableVersion = Annotated[
    int, typer.Option("--table-version", hidden=True, help="The version of the table. Default: the newest.")
]
Supervisor = Annotated[int, typer.Option("--supervisor", hidden=True, help="The process that started this one.")]


@dataclass(frozen=True, slots=True)
class ScoringHosts:
    """The hosts of a command, and which of them it is.

    Attributes:
        hosts: their number.
        rank: of this one, from 0 on.
        addresses: of hosts on several machines, by rank; empty: they are processes of this machine.
        token: of hosts on several machines.
        meeting: the folder where processes of this machine meet; "" for the first one, which makes it.
    """

    hosts: int
    rank: int
    addresses: tuple[str, ...] = ()
    token: str = ""
    meeting: str = ""

    @contextmanager
    def channels(self, command: Callable[[int, Path], Sequence[str]]) -> Iterator[ScoringChannels]:
        """The channels to the other hosts. ``command``: the command line of another process of this machine, by its rank and where they meet."""
        from trainer.job.scoring.local_hosts import local_hosts, token_path
        from trainer.job.scoring.scoring_host import meet, scoring_channels, wait_for_hosts
        from trainer.wire.flight.addresses import Address

        here = Address("127.0.0.1", 0)
        if self.addresses:
            parsed = [Address.parse(one) for one in self.addresses]

            def find(own: Address) -> list[Address]:
                wait_for_hosts(parsed)
                return parsed

            with scoring_channels(self.rank, parsed[self.rank], find, token=self.token) as found:
                yield found
        elif self.meeting:
            folder = Path(self.meeting)
            token = token_path(folder).read_text(encoding="ascii")
            with scoring_channels(self.rank, here, lambda own: meet(folder, self.rank, self.hosts, own, _nothing), token=token) as found:  # fmt: skip
                yield found
        else:
            with (
                local_hosts(self.hosts, command) as others,
                scoring_channels(
                    0,
                    here,
                    lambda own: meet(others.folder, 0, self.hosts, own, others.check),
                    token=others.token,
                    check=others.check,
                ) as found,
            ):
                yield found

    def run(
        self,
        command: Callable[[int, Path], Sequence[str]],
        work: Callable[[ScoringChannels], _Found],
        tell: Callable[[str], None],
    ) -> _Found:
        """What ``work`` finds by the channels; it begins again if another process of this machine is killed, up to twice.

        ``command``: as of :meth:`channels`; ``tell``: hears that it begins again. Raises :class:`~trainer.errors.HostLost`.
        """
        for left in reversed(range(_MOST_ATTEMPTS)):
            try:
                with self.channels(command) as channels:
                    return work(channels)
            except HostKilled as error:
                if not left:
                    raise
                tell(f"{error.where} was killed: all events are scored again")
        raise AssertionError("the last attempt returns or raises")


def scoring_hosts(hosts: str, rank: int, token_file: str, meeting: str) -> ScoringHosts | None:
    """The hosts that the options name; None: this process scores alone. Raises :class:`InputError`."""
    from trainer.wire.flight.addresses import Address

    if not hosts:
        if rank >= 0 or token_file:
            raise InputError("--rank and --token-file must go with --hosts", where="--hosts", value="not given")
        return None
    if hosts.isascii() and hosts.isdigit():
        count = int(hosts[:9])
        if not 1 <= count <= _MOST_HOSTS:
            raise InputError(
                "--hosts must be in its range",
                where="--hosts",
                value=hosts[:20],
                allowed=f"1 to {_MOST_HOSTS}, or addresses",
            )
        if not meeting and (rank >= 0 or token_file):
            raise InputError("--rank and --token-file must go with the addresses of hosts", where="--hosts", value=hosts,
                             allowed="host:port,host:port,...", next_step="leave them out: processes of this machine need neither")  # fmt: skip
        return None if count == 1 else ScoringHosts(count, max(rank, 0), meeting=meeting)
    addresses = tuple(str(Address.parse(one.strip())) for one in hosts.split(","))
    if not 2 <= len(addresses) <= _MOST_HOSTS or len({*addresses}) < len(addresses):
        raise InputError(
            "--hosts must be different addresses", where="--hosts", value=hosts[:200], allowed=f"2 to {_MOST_HOSTS}"
        )
    if not 0 <= rank < len(addresses):
        raise InputError("--rank must be the place of this machine among --hosts", where="--rank", value="not given" if rank < 0 else rank,
                         allowed=f"0 to {len(addresses) - 1}", next_step="start the command once on each machine, each with its own rank")  # fmt: skip
    return ScoringHosts(len(addresses), rank, addresses, read_token_file(token_file) if token_file else "")


def scoring_command(
    model: str,
    version: int,
    run_dir: str,
    start: str,
    end: str,
    home: str,
    hosts: int,
    rank: int,
    meeting: Path,
    *,
    by: Sequence[str] = (),
    most: int | None = None,
    held_out: int = 0,
    table_version: int = 0,
) -> list[str]:
    """The command line of another process of this machine that scores the same events, and computes the same figures."""
    found = module_command("headrace", "evaluate", model, "--run-dir", run_dir, "--version", str(version))
    for name, value in (("--start", start), ("--end", end), ("--home", home)):
        found += [name, value] if value else []
    for column in by:
        found += ["--by", column]
    found += [] if most is None else ["--most", str(most)]
    for name, number in (("--held-out", held_out), ("--table-version", table_version)):
        found += [name, str(number)] if number else []
    return [*found, "--hosts", str(hosts), "--rank", str(rank), "--meeting", str(meeting), "--json"]


def predicting_command(
    model: str,
    version: int,
    run_dir: str,
    start: str,
    end: str,
    columns: str,
    output: str,
    home: str,
    hosts: int,
    table_version: int,
    rank: int,
    meeting: Path,
) -> list[str]:
    """The command line of another process of this machine that writes scores of the same events."""
    found = module_command("headrace", "predict", model, "--run-dir", run_dir, "--version", str(version), "--output", output)  # fmt: skip
    for name, value in (("--start", start), ("--end", end), ("--columns", columns), ("--home", home)):
        found += [name, value] if value else []
    found += ["--table-version", str(table_version)]
    return [*found, "--hosts", str(hosts), "--rank", str(rank), "--meeting", str(meeting)]


def _nothing() -> None:
    """A process that was started by another one ends with it."""
