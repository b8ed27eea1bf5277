"""Computing one fragment: the work, the computation, its result, and the step that is running."""
