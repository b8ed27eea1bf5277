"""The errors of the warehouse, each under one branch of :mod:`transforms.errors`."""

from __future__ import annotations

from transforms.errors import Busy, DataError, InputError, NotFound, StorageError


class UnknownTable(NotFound):
    """No table of this name is registered."""


class UnknownModel(NotFound):
    """No model of this name, or no such version of it, was submitted."""


class UnknownClient(NotFound):
    """No client of this name submitted a model."""


class UnknownComponent(NotFound):
    """No component has this fingerprint or prefix."""


class UnknownTask(NotFound):
    """No task has this number, or this component and partition."""


class UnknownEviction(NotFound):
    """No eviction has this number."""


class PlanChanged(Busy):
    """An eviction differs from its dry run: memos were added, evicted or pinned since. Nothing was changed."""


class NameTaken(InputError):
    """A model of this name belongs to another client."""


class CatalogBusy(Busy):
    """Another process held the catalog's write lock for longer than the configured wait. Nothing was changed."""


class CatalogConflict(CatalogBusy):
    """The database rolled the transaction back: a deadlock or a serialization failure."""


class CatalogLost(Busy):
    """The catalog cannot be reached, or the connection broke before the commit was sent. Nothing was changed."""


class CatalogFull(CatalogLost):
    """The server has no connection left for this process. Nothing was changed."""


class CatalogTimeout(Busy):
    """Reading the catalog took longer than this process allows. Nothing was changed."""


class CommitInDoubt(StorageError):
    """The connection to the catalog broke during a commit, which may have succeeded."""


class CatalogVersionError(DataError):
    """The catalog was written by an incompatible version of Headrace."""


class EmptyPartition(DataError):
    """A partition folder has no Parquet file."""


class SchemaDrift(DataError):
    """A file has other columns than the table."""


class MissingFile(DataError):
    """A file does not exist, or its storage cannot be reached from this machine."""


class CorruptFile(DataError):
    """A file is truncated or of another format."""


class ChangedData(DataError):
    """A raw file does not have the values that were registered."""


class MemoDamaged(DataError):
    """A memo's bytes are missing or differ from those that were committed. It can always be computed again."""


class OverlayDamaged(DataError):
    """The bytes of an overlay or a deletion vector are missing or differ from those that were registered."""


class ArtifactDamaged(DataError):
    """An artifact's bytes are missing or differ from its digest. Analyzing again restores it."""


class NotAnalyzed(InputError):
    """A model has full-pass operators that are not analyzed over the current data."""


class NotJoined(InputError):
    """Data to read has joined columns that are not computed yet."""


class IllegalTransition(InputError):
    """The state of a task does not allow the action."""


class StatesDamaged(DataError):
    """Files of states do not have the bytes that their manifest states."""
