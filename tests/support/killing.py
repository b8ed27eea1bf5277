"""Code for a process that is killed at a point of its own work."""

from __future__ import annotations

#: Defines ``killing(module, name, after=...)``: a function of that name kills its process by SIGKILL, before or after its work.
KILLING = """
import os, signal

def killing(module, name, *, after):
    original = getattr(module, name)
    def call(*args, **options):
        if after:
            original(*args, **options)
        os.kill(os.getpid(), signal.SIGKILL)
    setattr(module, name, call)
"""
