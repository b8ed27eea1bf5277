"""Writes the generated pages of the manual into a folder: ``python -m headrace.reference docs``, or ``make reference``."""

from __future__ import annotations

import sys

from headrace.reference.pages import write_pages

if __name__ == "__main__":
    write_pages(sys.argv[1])
