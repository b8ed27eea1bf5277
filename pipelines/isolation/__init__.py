"""Fragments computed in child processes, so that a component that explodes, stalls or crashes costs no other anything.

    parent (any thread)                    server (one, clean)             child (one a thread)
    memoizing.py  what to try, merging     server.py  imports once,        child.py  computes a fragment,
    bisection.py  who is at fault (pure)              forks children                 tries a sample
    samples.py    the smallest sample                                      progress_cell.py  says which step it is in
    shrink.py     delta debugging (pure)
    processes.py  children at hand         watch.py   memory and time of a child

Data never passes between them: a child reads the raw columns and writes the memo file itself. Whoever dies takes those
below along, by the kernel's hand.
"""
