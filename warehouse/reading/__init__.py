"""Reading for trainers: the fragments of a read solution, and pins that protect their files."""
