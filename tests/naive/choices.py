"""The layouts of a transformer that are tried: all whole numbers, without those that a rule takes out."""

from itertools import product


def upto(most):
    return range(1, most + 1)


def text(tp, cp, ep, dp, pp, chunks):
    """Write a strategy, degrees of 1 left out."""
    found = f"TP-{tp}"
    for letter, degree in (("c", cp), ("e", ep), ("d", dp), ("p", pp)):
        found += f"-{letter}{degree}" if degree > 1 else ""
    return found + (f"x{chunks}" if chunks > 1 else "")


def shares(tp, cp, ep, dp, expert_tensor):
    """Say whether ep devices can share experts: they fill tp if it cuts no experts, then cp, then dp."""
    for filled in (() if expert_tensor else (tp * cp, tp)) + (cp, 1):
        if ep % filled == 0 and dp % (ep // filled) == 0:
            return True
    return False


def divides(layers, virtual):
    """Say whether so many virtual stages have as many layers each, or embedding and head are two more."""
    return layers % virtual == 0 or ((layers + 2) % virtual == 0 and layers + 2 > virtual)


def layouts(devices, machine, layers, heads, sequence, batch, experts, fused=True, tp_cuts=True, most=()):
    """Return (strategy, micro-batch, recomputation, ZeRO, split) of all layouts; most: bounds."""
    most = {"tp": machine if machine > 1 else devices} | dict(most)
    found = set()
    for tp, cp, pp in product(upto(devices), repeat=3):
        if devices % (tp * cp * pp):
            continue
        dp = devices // (tp * cp * pp)
        halves = 2 if cp > 1 else 1  # causal attention: each device has one half from either end
        if heads % tp or sequence % (halves * cp * tp) or batch % dp:
            continue
        for chunks, ep in product(upto(layers + 2), upto(max(experts, 1))):
            virtual = pp * chunks
            if pp == 1 < chunks or max(experts, 1) % ep:
                continue
            split = "even"
            if not divides(layers, virtual):
                if (
                    chunks > 1
                    or pp > layers
                    or any(divides(layers, pp * other) for other in upto(layers + 2))
                ):
                    continue
                split = "balanced"
            if ep > 1 and not shares(tp, cp, ep, dp, tp_cuts):
                continue
            degrees = {"tp": tp, "cp": cp, "ep": ep, "dp": dp, "pp": pp, "chunks": chunks}
            if any(degrees[name] > bound for name, bound in most.items()):
                continue
            for size in (1, 2, 4, 8):
                if batch // dp % size or (chunks > 1 and batch // dp // size % pp):
                    continue
                for again in ("none", "full") if fused else ("none", "selective", "full"):
                    for zero in (1, 2, 3) if pp == 1 and dp * cp > 1 else (1,):
                        found.add((text(tp, cp, ep, dp, pp, chunks), size, again, zero, split))
    return found
