"""Encoders of sequences: from the rows of an event's last ids to one vector, before the network over vectors."""
