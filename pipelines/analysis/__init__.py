"""Full passes: tf.Transform's analyzers over stated ranges of partitions, a partition at a time, none of them twice.

``passes`` reads what is missing in one Beam job, ``analyzers`` says which analyzer an operator needs and merges what
partitions contributed, ``contributions`` keeps that, and ``analyze`` does it all for models. The only place of this room
that imports TensorFlow.
"""
