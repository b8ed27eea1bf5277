"""Tables that follow a lake: Delta and Iceberg tables as versions of a table, whose rows keep their places."""
