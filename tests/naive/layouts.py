"""An activation between layers that are laid out differently, element by element (3.3, 5.1).

All devices of a stage share a tensor of rows x cols. A layout deals rows out to `row_shards` and columns
to `ranks`, whose product is the number of devices; the activation that a layer makes is cut so, by either
kernel cut. What it reads is cut so too under Column-Row; Row-Column, and no cut, read whole rows.
"""


def degrees(kernel, kp1, kp2, dp):
    """Return (row shards, ranks) of a layout; kernel is "RC", "CR" or "" ."""
    return (dp * kp1, kp2) if kernel == "RC" else (dp, kp1)


def blocks(layout, other, rows, cols):
    """Return for every device its (rows, columns) under a layout, as ranges.

    Devices are numbered so that under two layouts a device's rows, and its columns, lie within each other:
    runs of as many devices as the larger number of ranks, in which the smaller number's rows change fastest.
    """
    row_shards, ranks = degrees(*layout)
    run = max(ranks, degrees(*other)[1])
    apart = run // ranks
    found = []
    for device in range(row_shards * ranks):
        row = device // run * apart + device % run % apart
        col = device % run // apart
        tall, wide = rows // row_shards, cols // ranks
        found.append((range(row * tall, (row + 1) * tall), range(col * wide, (col + 1) * wide)))
    return found


def read(layout, other, rows, cols):
    """Return for every device what its layer reads, as ranges of rows and columns."""
    made = blocks(layout, other, rows, cols)
    return made if layout[0] == "CR" else [(own, range(cols)) for own, _ in made]


def elements(block):
    return {(row, col) for row in block[0] for col in block[1]}


def missing(there, wanted):
    """Return how many elements each device lacks, which must be the same number everywhere."""
    counts = {len(elements(want) - elements(have)) for have, want in zip(there, wanted, strict=True)}
    (count,) = counts
    return count


def forward(maker, reader, rows, cols):
    """Return the elements that reach a device, so that each has what its layer reads."""
    return missing(blocks(maker, reader, rows, cols), read(reader, maker, rows, cols))


def backward(maker, reader, rows, cols):
    """Return the elements of dX that reach a device, so that each has those that its own products want.

    That is its part of what it has made; a Column-Row product wants whole rows. Under Row-Column every
    device has partial sums of whole rows, which a reduce-scatter over its group of ranks sums wherever they
    are wanted among the group's; that is not counted here.
    """
    if (maker[0], degrees(*maker)) == (reader[0], degrees(*reader)):
        return 0
    summed = reader[0] == "RC" and degrees(*reader)[1] > 1
    if maker[0] != "CR":
        return missing(read(reader, maker, rows, cols), blocks(maker, reader, rows, cols))
    whole = [(own, range(cols)) for own, _ in blocks(maker, reader, rows, cols)]
    if summed:  # an equal part of the sum, all of it wanted here
        return len(elements(whole[0])) - rows * cols // len(whole)
    return missing(read(reader, maker, rows, cols), whole)


def arriving(collective, ranks, size):
    """Return what reaches a rank of a collective over `size`: of the tensor, or of what one deals out."""
    return {"": 0.0, "all-gather": (ranks - 1) / ranks, "all-to-all": (ranks - 1) / ranks}[collective] * size


def collective(maker, reader, rows, cols, backward=False):
    """Return what brings every device the part of an activation that its layer reads; "" where all have it.

    Within runs of as many devices as the end that has more of them: a gather where all of a run want what the
    run has, else all-to-all. Backward: of a gradient, the part that the maker's own products want; where
    the reader makes partial sums, from equal parts of them to all that a Column-Row maker wants.
    """
    have, want = blocks(maker, reader, rows, cols), read(reader, maker, rows, cols)
    if backward:
        made, summed = have, reader[0] == "RC" and degrees(*reader)[1] > 1
        have = blocks(reader, maker, rows, cols) if summed else want
        want = [(own, range(cols)) for own, _ in made] if maker[0] == "CR" else made
    if missing(have, want) == 0:
        return ""
    run = max(degrees(*maker)[1], degrees(*reader)[1])
    for first in range(0, len(have), run):
        union = set().union(*(elements(block) for block in have[first : first + run]))
        if any(elements(block) != union for block in want[first : first + run]):
            return "all-to-all"
    return "all-gather"
