"""The weights of a run: dense arrays and tables, in this process, on servers or on TPUs, and their steps."""
