"""Several stores of rows as one."""
