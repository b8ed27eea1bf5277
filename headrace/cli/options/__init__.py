"""The options and arguments that several commands share."""
