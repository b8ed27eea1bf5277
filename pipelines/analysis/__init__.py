"""Full passes over stated ranges of partitions, a partition at a time, none of them twice.

``passes`` reads what is missing in one Beam job; ``accumulators`` says what an operator keeps of a partition and how that is
merged (``terms``, ``labels``, ``moments``, ``quantiles``, ``extremes``); ``contributions`` stores it, and ``analyze`` does it
all for models. The outcomes are tf.Transform's: tests hold them against it.
"""
