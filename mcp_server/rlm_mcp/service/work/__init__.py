"""The queue as clients use it: what is next, claims, hand-offs."""
