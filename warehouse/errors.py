"""What the warehouse refuses, each a leaf under one branch of :mod:`transforms.errors`."""

from __future__ import annotations

from transforms.errors import Busy, DataError, InputError, NotFound, StorageError


class UnknownTable(NotFound):
    """No table of this name is registered."""


class UnknownModel(NotFound):
    """No model of this name (or this version of it) was submitted."""


class UnknownClient(NotFound):
    """No client of this name submitted a model."""


class UnknownComponent(NotFound):
    """No component's fingerprint is, or starts with, what was given."""


class UnknownTask(NotFound):
    """No task has this number, or is of this component and over this partition."""


class PlanChanged(Busy):
    """An eviction would not do what its dry run said: memos came, went or were pinned since. Nothing was changed."""


class NameTaken(InputError):
    """A model of this name belongs to another client."""


class CatalogBusy(Busy):
    """Another process held the catalog's write lock for longer than the configured wait. Nothing was changed."""


class CatalogConflict(CatalogBusy):
    """The database undid the transaction because of another one: a deadlock, or a serialization failure."""


class CatalogLost(Busy):
    """No connection to the catalog, or it broke before the commit was sent. Nothing was changed."""


class CatalogFull(CatalogLost):
    """The server has no connection left for this process. Nothing was changed."""


class CommitInDoubt(StorageError):
    """The connection to the catalog broke while a commit was under way: it was made, or it was not."""


class CatalogVersionError(DataError):
    """The catalog was written by a version of Headrace that this one does not know."""


class EmptyPartition(DataError):
    """A partition folder that holds no Parquet file."""


class SchemaDrift(DataError):
    """A file whose columns differ from those of the table's other files."""


class MissingFile(DataError):
    """A file that is not there: it was removed, or this machine does not see the storage it lies on."""


class CorruptFile(DataError):
    """A file that is truncated or is not what its name says."""


class ChangedData(DataError):
    """A raw file no longer holds the values that were registered."""


class MemoDamaged(DataError):
    """A memo's bytes are missing or are not the bytes that were committed. Computing it again is always possible."""


class OverlayDamaged(DataError):
    """The bytes of an overlay or of a deletion vector are missing or are not those that were registered."""


class ArtifactDamaged(DataError):
    """An artifact's bytes are missing or are not those it is named by. Analyzing again brings them back."""


class NotAnalyzed(InputError):
    """A model has full-pass operators whose analysis nobody made over the data that is there now."""


class IllegalTransition(InputError):
    """A task was asked to do what its state does not allow."""
