"""What the user sees: one frozen dataclass a screen. Its fields are the JSON; ``render`` is the table for a person."""
