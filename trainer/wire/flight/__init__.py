"""Arrow Flight between the roles of a job: addresses, tokens, limits, and errors as documents."""
