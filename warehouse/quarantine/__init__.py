"""Failed tasks: query, list, retry, drop."""
