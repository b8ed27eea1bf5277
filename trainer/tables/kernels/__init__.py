"""Compiled loops over rows of tables, the memory of rows, and the log that undoes the update of a killed process."""
