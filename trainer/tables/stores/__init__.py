"""Row stores: which rows of a table have memory, and their values."""
