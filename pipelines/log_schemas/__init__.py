"""Schema files, which describe text logs: columns, types, time formats."""
