"""All-reduces of serving libraries over peers' memory, each way written out by hand (slow, obvious)."""

from math import ceil, inf

IN_FLIGHT = 36 * 512 * 16  # blocks of vLLM's kernel, threads of a block, bytes of a load
ROUND_TRIP, FENCE = 1.39, 0.75  # in steps by LL, in steps by Simple
PUSH = 3.8  # steps by LL of a kernel that polls what peers store
KIB, MIB = 1024, 1024 * 1024


def _one_load(size, others, speed, step, load):
    """Return the time of loads of `size` bytes from all others at once."""
    trips = size / IN_FLIGHT * (ROUND_TRIP * step["ll"])
    return max(trips, others * size / (load * speed))


def ways(
    collective, size, ranks, speed, step, launch, late, load, whole_trips=False, memory=inf, reduces=0.0,
    backend="custom",
):  # fmt: skip
    """Return the time of every way of a backend among ranks of one machine, name to seconds; none of a single
    rank.

    speed: of a device's links, which reach every peer at once [B/s]; step: latency of one [s] by "ll" and by
    "simple"; launch, late: of a kernel, and more where it waits for the one before [s]; load: share of the
    links that loads reach; whole_trips: whether the sums of two-shot take whole round trips, or a line
    through them; memory: bandwidth of main memory [B/s]; reduces: share of its links that a switch reaches, 0
    without one.
    """
    if ranks == 1:
        return {}
    found = {}
    others = ranks - 1
    if collective == "all-reduce" and ranks <= 8 and backend == "trtllm":
        given = (size, ranks, speed, step, launch, late, load, memory, reduces, True)
        found |= {name: kernel(name, *given) for name in ("pushed", "pushed twice")}
    elif collective == "all-reduce" and ranks <= 8:
        if reduces > 0 and ranks > 2:
            given = (size, ranks, speed, step, launch, late, load, memory, reduces, True)
            found["multimem"] = kernel("multimem", *given)
        barrier, first_bytes = step["ll"], step["ll"]
        found["one-shot"] = sum(
            [launch, late, barrier, first_bytes, _one_load(size, others, speed, step, load), barrier]
        )
        part = size / ranks
        rounds = part / IN_FLIGHT
        trip = others * (ROUND_TRIP * step["ll"])  # from one peer after the other
        if whole_trips:
            gathering = max(ceil(rounds) * trip, others * part / (load * speed))
        else:
            gathering = 0.75 * trip + max(0.75 * rounds * trip, others * part / (load * speed))
        found["two-shot"] = sum(
            [
                launch, late, barrier, first_bytes, _one_load(part, others, speed, step, load),
                FENCE * step["simple"], first_bytes, gathering,
            ]
        )  # fmt: skip
    if collective == "all-to-all":
        stored = others * (size / ranks) / speed
        found["stores"] = launch + step["ll"] + stored + FENCE * step["simple"]
    return found


def time(*given):
    """Return the time of the fastest way [s]."""
    return min(ways(*given).values(), default=inf)


def kernel(name, size, ranks, speed, step, launch, late, load, memory, reduces, is_late):
    """Return the time of one of a serving library's kernels [s]; reduces: the switch's share of its links."""
    others, part = ranks - 1, size / ranks
    if name in ("one-shot", "two-shot"):
        return ways("all-reduce", size, ranks, speed, step, launch, late, load, whole_trips=True)[name]
    moved = others * size / (load * speed)
    fence = FENCE * step["simple"]
    if name == "pushed":
        return moved + (PUSH * step["ll"] if is_late else launch + late + 2 * step["ll"])
    if name == "pushed twice":
        copies = 3 * size / memory
        return launch + fence + ROUND_TRIP * step["ll"] + fence + 2 * others * part / (load * speed) + copies
    copies, three_kernels = 4 * size / memory, 3 * (launch + late)
    if name == "multimem" and reduces > 0:
        return three_kernels + fence + copies + (size + part) / (reduces * speed)
    return three_kernels + fence + copies + 2 * others * part / (load * speed)


def choice(server, size, ranks, architecture):
    """Return the kernel that a serving library runs, by its thresholds."""
    shots = "one-shot" if ranks == 2 or size < (512 if ranks <= 4 else 256) * KIB else "two-shot"
    if server == "sglang":
        return shots if size <= 8 * MIB else "nccl"
    if server == "vllm":
        custom = {
            ("hopper", 8): MIB / 4, ("hopper", 6): MIB / 2,
            ("blackwell", 2): 2 * MIB, ("blackwell", 4): 2 * MIB,
            ("blackwell", 6): MIB, ("blackwell", 8): MIB,
        }.get((architecture, ranks), 8 * MIB)  # fmt: skip
        symmetric = {
            "hopper": {2: 64, 4: 32, 6: 64, 8: 64}, "blackwell": {2: 8, 4: 32, 6: 128, 8: 128},
        }.get(architecture, {}).get(ranks, 0) * MIB  # fmt: skip
        if size < custom:
            return shots
        return "nccl" if size >= symmetric else "multimem" if ranks > 2 else "symmetric"
    if architecture not in ("hopper", "blackwell"):
        return "pushed" if size < {2: 2e6, 4: 1e6}.get(ranks, 5e5) else "nccl"
    if size > (16e6 if ranks == 2 else 8e6):
        return "nccl"
    twice = {
        "hopper": {2: 32 * MIB, 4: 2 * MIB}, "blackwell": {2: 32 * MIB, 4: 4 * MIB, 8: 2 * MIB},
    }[architecture].get(ranks, MIB / 2)  # fmt: skip
    return "pushed" if size < twice else "pushed twice"
