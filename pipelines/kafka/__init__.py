"""Reading a topic of Kafka into a table: the client, messages as rows, the loop of batches."""
