"""Analyses of full-pass operators over ranges of partitions, one partition at a time, none of them twice.

``analyze`` runs the analyses of a model. ``passes`` reads the missing partitions in one Beam job, ``accumulators`` holds
an accumulator per operator (``terms``, ``labels``, ``moments``, ``quantiles``, ``extremes``), and ``contributions`` stores
their states. Tests compare the results with those of tf.Transform.
"""
