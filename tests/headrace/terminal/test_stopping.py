"""The signals that end a command."""

import signal

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
