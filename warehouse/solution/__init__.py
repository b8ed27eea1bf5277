"""The read solution: the document that a trainer is handed, and its values."""
