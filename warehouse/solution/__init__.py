"""The read solution: the document from which a trainer reads, and its values."""
