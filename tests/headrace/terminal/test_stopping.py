"""The signals that end a command."""

import signal
from contextlib import suppress

import pytest

from headrace.terminal.stopping import ended_by_signals


@pytest.fixture
def in_the_background():
    """As a shell starts what it runs behind another command."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


def what_ends(*told):
    """What a command ends by that is told these, one after another."""
    try:
        with ended_by_signals():
            for number in told:
                signal.raise_signal(number)
    except BaseException as ended:
        return ended
    return None


@pytest.mark.usefixtures("in_the_background")
def test_ctrl_c_is_for_what_runs_in_front():
    assert what_ends(signal.SIGINT) is None
    ended = what_ends(signal.SIGINT, signal.SIGTERM)
    assert isinstance(ended, SystemExit)
    assert ended.code == 143
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_ctrl_c_ends_what_runs_in_front():
    before = signal.getsignal(signal.SIGINT)
    assert isinstance(what_ends(signal.SIGINT, signal.SIGTERM), KeyboardInterrupt)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(("number", "ended"), [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)])
def test_an_error_that_a_signal_causes_ends_as_the_signal_does(number, ended):
    """As of a library whose own thread has failed since its children have ended, before the main thread came to the signal."""

    def swallows_it() -> None:
        with suppress(SystemExit, KeyboardInterrupt):
            signal.raise_signal(number)
        raise RuntimeError("a child has ended")

    with pytest.raises(ended) as raised, ended_by_signals():
        swallows_it()
    assert number == signal.SIGINT or raised.value.code == 143


def test_an_error_without_a_signal_stays_one():
    with pytest.raises(RuntimeError, match="of its own"), ended_by_signals():
        raise RuntimeError("of its own")
