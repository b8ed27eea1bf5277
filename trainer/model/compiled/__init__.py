"""The dense part of a model in compiled kernels, without TensorFlow: networks as programs of a few operations, their gradients and updates."""
