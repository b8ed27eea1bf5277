"""The ``headrace`` command: one module a group of commands. Commands return screens; :mod:`headrace.terminal.output` prints."""
