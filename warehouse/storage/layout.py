"""The folders of a home and the parts of file names, as constants for writers and garbage collection."""

from __future__ import annotations

#: Memo files.
MEMOS = "memos"
#: Artifacts of full passes, named by the digest of their values.
ARTIFACTS = "artifacts"
#: Overlays and deletion vectors.
OVERLAYS = "overlays"
#: Tables that follow a lake or a topic of Kafka: their rows, and where those of a lake come from.
LAKES = "lakes"
#: Results that Beam workers write for the worker that started them.
JOBS = "jobs"
#: Contributions to analyses; ``jobs`` in it holds the progress of workers.
ANALYSIS = "analysis"
#: Files of batches, which trainings read in place of fragments, and their suffix.
BATCHES = "batches"
BATCH_SUFFIX = "batches"
#: Files of rows in the order of their keys, for repairs of joined columns, and their suffix.
ROWS = "rows"
ROWS_SUFFIX = "rows"
#: The suffix of memo files, overlays and deletion vectors.
SUFFIX = "memo"
#: The prefix of lease names of compactions, which no task has.
COMPACTION = "compaction"
