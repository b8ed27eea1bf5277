"""TensorFlow twins: the operators once more, as TensorFlow graphs, so that a serving model computes what the warehouse holds.

The only place of this room that imports TensorFlow; nothing else imports it but through :class:`Imported`, when it is asked.
"""
