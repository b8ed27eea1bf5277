"""Starts a command as a process of its own, and returns its screen."""

from __future__ import annotations

import base64
import json
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any

from headrace.terminal.parent import Progress
from transforms.child_process import child_environment, module_command
from transforms.errors import HeadraceError, InputError

#: The lines of standard error that an error without a screen shows.
_LAST_LINES = 12
#: Interrupts that a command gets before it is killed.
_MOST_INTERRUPTS = 2


class CommandFailed(HeadraceError):
    """A command ended without a screen and without an error: it was killed, or has a defect."""

    exit_status = 70


def run_command(
    arguments: Sequence[str],
    *,
    changes: Mapping[str, str],
    show: Callable[[Progress], None],
    tell: Callable[[str], None],
) -> Any:
    """Run ``headrace ARGUMENTS`` as a process and return its screen.

    Args:
        arguments: of the command.
        changes: of the environment.
        show: is called with progress.
        tell: is called with each line that the command says.

    An interrupt (Ctrl-C, or the stop button of a notebook) interrupts the command, which may take some seconds to commit, and is raised again when it has
    ended; a second one stops it at once, a third one kills it.

    Raises the error of the command, and :class:`CommandFailed`.
    """
    reading, writing = os.pipe()
    messages = queue.SimpleQueue[bytes]()
    receiver = threading.Thread(
        target=_receive, args=(os.fdopen(reading, "rb"), messages), name="messages", daemon=True
    )
    try:
        process = subprocess.Popen(
            module_command("headrace", f"--report-fd={writing}", *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(writing,),
            start_new_session=True,  # an interrupt of a terminal or a notebook is passed on once
            env=child_environment(changes),
        )
    finally:
        os.close(writing)
    receiver.start()
    said = deque[str](maxlen=_LAST_LINES)
    assert process.stderr is not None
    listener = threading.Thread(target=_listen, args=(process.stderr, said, tell), name="said", daemon=True)
    listener.start()
    with _ended(process) as is_interrupted:
        screen, error = _outcome(messages, show, process, is_interrupted)
        status = process.wait()
        listener.join()
    if is_interrupted:
        if screen is not None:
            tell(str(screen))
        raise KeyboardInterrupt
    if error is not None:
        raise error
    if screen is None:
        raise _failure(arguments, status, said)
    return screen


def _outcome(
    messages: queue.SimpleQueue[bytes],
    show: Callable[[Progress], None],
    process: subprocess.Popen[bytes],
    interrupts: list[int],
) -> tuple[Any, HeadraceError | None]:
    """The last screen and the error of a command, when it has ended."""
    screen, error = None, None
    while True:
        try:
            line = messages.get()
        except KeyboardInterrupt:
            interrupts.append(1)
            process.send_signal(signal.SIGKILL if len(interrupts) > _MOST_INTERRUPTS else signal.SIGINT)
            continue
        if not line:
            return screen, error
        message = json.loads(line)
        if "progress" in message:
            show(Progress(*message["progress"]))
        elif "screen" in message:
            screen = pickle.loads(base64.b64decode(message["screen"]))
        else:
            error = pickle.loads(base64.b64decode(message["error"]))


def _receive(stream: IO[bytes], messages: queue.SimpleQueue[bytes]) -> None:
    """Hand each line on, and an empty one at the end. An interrupt of the main thread cannot cut a line here."""
    with stream:
        for line in stream:
            messages.put(line)
    messages.put(b"")


@contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """A list of interrupts; the process does not outlive the block."""
    try:
        yield []
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


def _listen(stream: IO[bytes], said: deque[str], tell: Callable[[str], None]) -> None:
    for line in stream:
        text = line.decode(errors="replace").rstrip("\n")
        said.append(text)
        tell(text)


def _failure(arguments: Sequence[str], status: int, said: Sequence[str]) -> HeadraceError:
    command = f"headrace {' '.join(arguments)}"[:300]
    ended = f"signal {-status}" if status < 0 else f"status {status}"
    kind = InputError if status == InputError.exit_status else CommandFailed
    return kind("a command must end with a screen", where=command, value=f"{ended}: " + "\n".join(said)[-2000:],
                next_step="run the command in a terminal to see all of its output")  # fmt: skip


def to_stderr(line: str) -> None:
    """Print a line on standard error, which notebooks show."""
    sys.stderr.write(line + "\n")
