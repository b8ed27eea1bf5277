"""Tables that a topic of Kafka feeds: the next offsets, and a batch of rows with its offsets in one transaction."""
