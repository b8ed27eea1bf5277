"""The folders of a home, and the names in them. Constants only: who writes a file and who deletes it agree here."""

from __future__ import annotations

#: Memo files.
MEMOS = "memos"
#: What full passes found, under the digest of their values.
ARTIFACTS = "artifacts"
#: The files of changes of tables.
OVERLAYS = "overlays"
#: Where Beam workers leave results for the worker that started them.
JOBS = "jobs"
#: Contributions to analyses; in its ``jobs`` workers say what they have done.
ANALYSIS = "analysis"
#: How the names of memo files and of files of changes end.
SUFFIX = "memo"
#: How the names of leases begin that are not a worker's: no task ever carries them.
COMPACTION = "compaction"
