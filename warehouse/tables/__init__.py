"""Tables: partitions, manifests, fragments, and their raw data."""
