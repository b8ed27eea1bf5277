"""Computing fragments in child processes with limits of memory and time.

    parent (any thread)                    server (one, clean)             child (one a thread)
    memoizing.py  attempts and results     server.py  imports once,        child.py  computes a fragment,
    bisection.py  the culprits (pure)                 forks children                 tries a sample
    samples.py    the smallest sample
    shrink.py     delta debugging (pure)
    processes.py  the pool of children     watch.py   memory and time of a child

A component that exhausts memory, stalls or crashes fails alone. A child reads the raw columns and writes the memo file
itself. When a process ends, the kernel ends the processes that it started.
"""
