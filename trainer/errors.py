"""What can go wrong in a trainer.

InputError
├── ConfigError           a training option is out of range, or two options contradict each other
├── UnsupportedSetting    a TensorFlow embedding setting that this engine does not have
├── RunMismatch           the run directory belongs to another configuration, model or past data
├── OtherFormat           a checkpoint of a format that this release does not read
├── OtherUpdate           an update has the number of another one that a parameter server has made
├── LinkRefused           a link of a chain of weights does not follow the state that it is applied to
└── IllegalEvent          the state of a training job does not allow the event
TypeMismatch
└── UntrainableInput      a model input of a type that no part of the model takes
DataError
├── BadLabel              a label is not valid for the model's task
├── BadFeature            a dense value is NaN or infinite, or a column is missing or of another length
├── BadBatch              an embedding batch with an id outside its table, or offsets that do not fit
├── NonFiniteLoss         training diverged
├── DataNotReady          the data to train is not there yet
├── DamagedLog            the log of a job's events has other bytes than were written
├── DamagedMemory         shared memory of embedding tables has other bytes than were written
└── TornCheckpoint        a checkpoint whose bytes are not those that were written
Busy
├── LeaseLost             another controller has the job, or may have it
├── CommitConflict        another controller published a commit
└── LinkTaken             another process added a link to a chain
StorageError
├── ClusterError          the API of a Kubernetes cluster does not answer, or refuses a request
├── CheckpointNotWritten  a checkpoint could not be made durable; the one before it is untouched
├── MemoryFull            the memory folder of a parameter server has no space for its tables
├── EventNotLogged        an event could not be written to the log of a job; nothing was done
└── PublicationInDoubt    it is unknown whether a commit was published: publish it again
CheckFailed               a program for TPUs could not be lowered or compiled
DamagedFrame              bytes between two processes did not arrive as they were sent
HostLost                  another host of the job ended, or does not answer
SliceLost                 a machine of a TPU slice does not answer, or has lost what it had been sent
ServerLost                a parameter server does not answer, or has lost its rows or what a client had begun
MoveGivenUp               tables were not moved to other servers; training goes on with those before
AttemptOver               the controller gave the attempt up
JobHeld                   a person must release the job before it goes on
"""

from __future__ import annotations

from transforms.errors import Busy, DataError, HeadraceError, InputError, StorageError, TypeMismatch


class ConfigError(InputError):
    """A training option is out of range, or two options contradict each other."""


class UnsupportedSetting(InputError):
    """A TensorFlow embedding setting that this engine does not have."""


class RunMismatch(InputError):
    """The run directory belongs to another configuration, model or past data."""


class OtherFormat(InputError):
    """A checkpoint of a format that this release does not read; nothing was changed."""


class LinkRefused(InputError):
    """A link of a chain of weights does not follow the state that it is applied to; nothing was changed."""


class MissingLink(LinkRefused):
    """Links begin after what a state holds, so the one before them, or a full snapshot, is missing; nothing was changed."""


class OtherUpdate(InputError):
    """An update has the number of another one that a parameter server has made; nothing was changed."""


class IllegalEvent(InputError):
    """The state of a training job does not allow the event; nothing was changed."""


class UntrainableInput(TypeMismatch):
    """A model input of a type that no part of the model takes."""


#: What to do about a run that diverged.
NEXT_AFTER_DIVERGENCE = "lower the learning rates and train in a fresh run directory; the last checkpoint is intact"


class BadLabel(DataError):
    """A label is not valid for the model's task."""


class BadFeature(DataError):
    """A dense value is NaN or infinite, or a column is missing or of another length."""


class BadBatch(DataError):
    """An embedding batch with an id outside its table, or offsets that do not fit."""


class NonFiniteLoss(DataError):
    """Training diverged: predictions, gradients or weights are NaN or infinite. The last checkpoint is untouched."""

    def at(self, place: str) -> NonFiniteLoss:
        """This error, with the place in the run before its own."""
        where = f"{place}, {self.where}" if self.where else place
        return NonFiniteLoss(
            self.what, where=where, value=self.value, next_step=self.next_step or NEXT_AFTER_DIVERGENCE
        )


class DataNotReady(DataError):
    """The data to train is not there yet: memos that are not ready, a partition that has not landed."""


class DamagedLog(DataError):
    """The log of a job's events has other bytes than were written."""


class DamagedBatches(DataError):
    """A file of batches has other bytes than were written."""


class DamagedMemory(DataError):
    """Shared memory of embedding tables has other bytes than were written."""


class TornCheckpoint(DataError):
    """A checkpoint whose bytes are not those that were written."""


class CommitConflict(Busy):
    """Another controller published a commit of this number, or a newer one; nothing was changed."""


class LinkTaken(Busy):
    """Another process added a link to a chain of weights before this one; nothing was changed."""


class CheckpointNotWritten(StorageError):
    """A checkpoint could not be made durable; the one before it is untouched."""


class MemoryFull(StorageError):
    """The memory folder of a parameter server has no space for its tables: they were not opened, or an update was not made."""


class CheckFailed(HeadraceError):
    """A program for TPUs could not be lowered or compiled."""


class ClusterError(StorageError):
    """The API of a Kubernetes cluster does not answer, or refuses a request; it is repeated."""


class DamagedFrame(HeadraceError):
    """Bytes between two processes did not arrive as they were sent; nothing of them is used, and they are sent again."""

    exit_status = 6


class HostLost(HeadraceError):
    """Another host of the job ended, or does not answer: the attempt cannot go on."""

    exit_status = 6


class HostKilled(HostLost):
    """Another process of this machine was ended by a signal: the same work may begin again."""


class SliceLost(HeadraceError):
    """A machine of a TPU slice does not answer, or was started again without what it had been sent: the process that drives it begins again."""

    exit_status = 6


class ServerLost(HeadraceError):
    """A parameter server does not answer in time, or has lost its rows, or the load or snapshot that a client had begun.

    Training goes on from the last checkpoint.
    """

    exit_status = 6


class ServerLeaves(ServerLost):
    """A parameter server or embedding worker that is about to end takes no new client."""


class MoveGivenUp(HeadraceError):
    """A move of tables to other parameter servers was given up; training goes on with those before."""

    exit_status = 6


class AttemptOver(HeadraceError):
    """The controller gave the attempt up: this host stops training it."""


class EventNotLogged(StorageError):
    """An event could not be written to the log of a job; nothing was done, and its sender repeats it."""


class LeaseLost(Busy):
    """The lock of the run directory was replaced or removed: another controller has the job, or may have it."""


class JobHeld(HeadraceError):
    """A job is held: it goes on after a person has released it."""

    exit_status = 7


class PublicationInDoubt(StorageError):
    """The storage failed while a commit was published, which may have succeeded; publishing it again settles it."""
