"""Tables on parameter servers, as an engine: placement of rows, messages, and one fetch and one update per server and batch."""
