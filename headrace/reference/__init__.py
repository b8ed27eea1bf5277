"""Generates the pages of the manual's reference from the code: commands, training options, operators, errors, JSON, Python."""
