"""The updates of the dense weights: optimizers, what they keep for each weight, segments of weights, and the learning rate of a step."""
