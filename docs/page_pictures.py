"""Photograph pages of a warehouse in Chromium, as PNG files for a page.

    python docs/page_pictures.py HOME graphs.png "/graphs?operator=intersect" evict.png "/evict?column=query"

The pages are served by ``headrace ui --allow-changes`` at a free port; Chromium is that of the machine.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys

WIDTH, HEIGHT = 1180, 780


def photograph(home: str, pictures: dict[str, str]) -> None:
    """Write a picture of each address: file to path with its query."""
    from playwright.sync_api import sync_playwright

    command = [sys.executable, "-m", "headrace", "ui", "--home", home, "--port", "0", "--allow-changes"]
    serving = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert serving.stderr is not None
    try:
        address = next(word for line in serving.stderr for word in line.split() if word.startswith("http://"))
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
            page.goto(address)
            for file, path in pictures.items():
                page.goto(address.partition("/enter")[0] + path)
                page.screenshot(path=file)
            browser.close()
    finally:
        serving.send_signal(signal.SIGINT)
        serving.wait()


if __name__ == "__main__":
    named = sys.argv[2:]
    photograph(sys.argv[1], dict(zip(named[::2], named[1::2], strict=True)))
