"""Vectorised inner loops over numpy buffers. One idea a module; nothing here knows operators, graphs or Arrow types."""
