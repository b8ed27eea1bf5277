"""The option groups of `headrace train`, and what they have to agree on."""
