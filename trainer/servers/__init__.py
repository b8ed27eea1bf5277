"""Parameter servers: processes that hold rows of embedding tables in shared memory, and connections to them."""
