"""Fills screens: one function a screen, which commands, Python and pages call."""
