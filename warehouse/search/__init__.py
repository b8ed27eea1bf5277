"""Search components by pattern, column, operator, model, size and age; count what a search can be narrowed by."""
