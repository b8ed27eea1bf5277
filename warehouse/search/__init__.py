"""Search components by pattern, column, operator, model, size and age."""
