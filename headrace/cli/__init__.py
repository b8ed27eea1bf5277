"""The commands of ``headrace``, one module per group; each makes a screen and prints it."""
