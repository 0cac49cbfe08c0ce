"""Layouts of pipelines, letter by letter, as a reader of the notation would write them out."""


def written_out(text):
    """Return a layout without repetitions and brackets."""
    out, rest = _group(list(text.replace(" ", "")), "")
    assert not rest
    return out


def _group(rest, closing):
    """Read up to a closing bracket; returns what was read and what is left."""
    out = ""
    while rest and rest[0] != closing:
        char, rest = rest[0], rest[1:]
        if char == "(":
            item, rest = _group(rest, ")")
            rest = rest[1:]
        else:
            item = char
        if rest and rest[0] == "*":
            digits = ""
            rest = rest[1:]
            while rest and rest[0].isdigit():
                digits, rest = digits + rest[0], rest[1:]
            item *= int(digits)
        out += item
    return out, rest


def stages_of(text, embedding):
    """Return the positions of the layers of every virtual stage; embedding: positions of `E`.

    Positions after the last letter but `L` are heads, of the last stage.
    """
    stages, position = [], 0
    for stage in written_out(text).split("|"):
        length = sum({"E": embedding, "t": 1, "m": 1, "L": 0}[letter] for letter in stage)
        stages.append(list(range(position, position + length)))
        position += length
    return stages
