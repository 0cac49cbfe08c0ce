"""Pairs of a query and a key in a packed sequence, one after the other."""


def pairs(sequence, document, window=0, chunk=0):
    """Return how many keys all queries see: those before them, of their document, window and chunk."""
    seen = 0
    for query in range(sequence):
        for key in range(query + 1):
            same = not document or query // document == key // document
            near = not window or query - key < window
            together = not chunk or query // chunk == key // chunk
            seen += same and near and together
    return seen
