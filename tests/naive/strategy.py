"""Strategy notation (3.3): a cut such as RC-{KP1}-{KP2} or none, d{DP} and p{LP}; each may be left out.

After p{LP} of several stages there may be x{CHUNKS}, of each.

After TP-{TP} there may be c{CP}, and e{EP}, which are some of the devices beside.
"""

DIGITS = "0123456789"


def degree(word):
    """Return a degree of parallelism, or None for a word that is none."""
    if word == "" or any(letter not in DIGITS for letter in word) or int(word) == 0:
        return None
    return int(word)


CUTS = {"": (), "RC": ("kp1", "kp2"), "CR": ("kp1",), "TP": ("tp",), "2D": ("kp1", "kp2"),
        "3D": ("kp1", "kp2", "tp")}  # fmt: skip


def parse(text):
    """Return (kernel, degrees above none by name), or None for a text that is no strategy."""
    words = text.split("-")
    kernel = words[0] if words[0] in CUTS and words[0] else ""
    own = words[1 : 1 + len(CUTS[kernel])] if kernel else []
    rest = words[1 + len(own) :] if kernel else words
    if len(own) < len(CUTS[kernel]):
        return None
    found = dict(zip(CUTS[kernel], map(degree, own), strict=True))
    more = (("c", "cp"), ("e", "ep")) if kernel == "TP" else ()
    for letter, name in (*more, ("d", "dp"), ("p", "pp")):
        if rest and rest[0].startswith(letter):
            word, rest = rest[0][1:], rest[1:]
            if letter == "p" and "x" in word:
                word, _, chunks = word.partition("x")
                found["chunks"] = degree(chunks)
            found[name] = degree(word)
    if rest or None in found.values():
        return None
    if found.get("chunks", 1) > 1 and found["pp"] == 1:
        return None
    return kernel, found


def expert_groups(tp, cp, dp, ep, expert_tp):
    """Return which of a stage's ranks share experts, as Megatron-core's RankGenerator numbers them.

    Order tp-cp-ep-dp: of attention's ranks, tp counts first, then cp, then dp; the same ranks are expert_tp
    x ep x the rest to experts (parallel_state.initialize_model_parallel).
    """
    found = {}
    for rank in range(tp * cp * dp):
        tensor, rest = rank % expert_tp, rank // expert_tp
        found.setdefault((tensor, rest // ep), set()).add(rank)
    return sorted(map(sorted, found.values()))
