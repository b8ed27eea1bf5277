"""Twins: a twin is the TensorFlow implementation of an operator, bit-equal to its kernel, for serving.

The only part of the package that imports TensorFlow; the rest loads it lazily through :class:`Imported`.
"""
