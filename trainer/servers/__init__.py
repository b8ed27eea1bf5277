"""Parameter servers, which hold rows of embedding tables in shared memory, embedding workers, which pool them, and connections to both."""
