"""The store of tables all of whose rows have memory."""
