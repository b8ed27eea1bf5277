"""Draw what commands print on a terminal, as an SVG file for a page.

    python docs/terminal_picture.py docs/explain.svg "headrace model explain first_model"

Each command runs in a terminal of ``COLUMNS`` cells, in the environment of this script ($HEADRACE_HOME names the warehouse).
The picture holds their text and the shape of a terminal window; it loads no font from elsewhere.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS = 120
_FONT_FACES = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def terminal_output(command: str) -> str:
    """What ``command`` prints on a terminal, with its colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    process = subprocess.Popen(command, shell=True, stdin=theirs, stdout=theirs, stderr=theirs,
                               env={**os.environ, "TERM": "xterm-256color"})  # fmt: skip
    os.close(theirs)
    written = b""
    try:
        while chunk := os.read(ours, 1 << 16):
            written += chunk
    except OSError:
        pass  # the terminal's other end is closed: the command has ended
    finally:
        os.close(ours)
    if process.wait() != 0:
        raise SystemExit(f"{command} must succeed, got exit status {process.returncode}:\n{written.decode()}")
    return written.decode().replace("\r\n", "\n")


def picture(commands: list[str]) -> str:
    """An SVG document of the commands and their output."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for command in commands:
        console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
        console.print(Text.from_ansi(terminal_output(command).rstrip("\n")))
        console.print()
    drawn = console.export_svg(title="headrace", unique_id="terminal")
    return _FONT_FACES.sub("", drawn).replace("Fira Code", "ui-monospace, Menlo, Consolas")


if __name__ == "__main__":
    output, *commands = sys.argv[1:]
    Path(output).write_text(picture(commands), encoding="utf-8")
