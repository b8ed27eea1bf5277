"""Tables of unbounded vocabularies: rows keyed by 64-bit ids, admitted by count, evicted by last use, in a budget of bytes."""
