"""How a parameter server takes rows that it owns: from the shards of a checkpoint, or from other servers that have them."""
