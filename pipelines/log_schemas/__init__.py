"""Schema files of logs: columns, types, time formats."""
