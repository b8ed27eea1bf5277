"""Reading for trainers: fragments of a read solution, and pins that protect what is read."""
