"""A graph's columns, and what its kernels exchange under a kernel cut, as tests read them."""

from fastflow.physics.parallelism.plans import assignment_of
from fastflow.physics.parallelism.sharding.propagation import READ, SUMMED, shardings_of
from fastflow.physics.workload.graph import COLLECTIVES


def columns_of(table, prefix=""):
    """Return every column of a table by its dotted name, those of nested records too."""
    columns = {}
    for name, column in zip(table._fields, table, strict=True):
        if hasattr(column, "_fields"):
            columns |= columns_of(column, f"{prefix}{name}.")
        else:
            columns[prefix + name] = column
    return columns


def exchanges(graph, cut):
    """Return (collective, columns) of every kernel of a graph, ("", 0) for none; cut: "RC" or "CR"."""
    found = []
    for point, place in enumerate(graph.structure):
        splits = shardings_of(graph.structures[place], assignment_of(cut))
        for row, split in enumerate(splits, graph.offset[point]):
            assert len(split.exchanges) < 2
            more = {SUMMED: graph.comm.summed_cols[row], READ: graph.comm.read_cols[row]}
            one = [(COLLECTIVES[one.collective], one.cols + more.get(one.of, 0)) for one in split.exchanges]
            found.append(one[0] if one else ("", 0))
    return found
