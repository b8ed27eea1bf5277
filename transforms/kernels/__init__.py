"""Vectorised inner loops of operators over numpy buffers, one module per family."""
