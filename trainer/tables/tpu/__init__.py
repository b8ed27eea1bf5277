"""The ``tpu`` engine: embedding tables in the memory of TPUs, under a TPUStrategy."""
