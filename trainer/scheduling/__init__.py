"""Pure decisions of the training job: states, work units, assignment to readers, buffers, holds."""
