"""Grouped products whose tiles follow a rule of their library, tile by tile (docs/model_layers.md)."""

from math import ceil

from tests.naive.blocks import Run, of_b, soft

COLUMNS = 128
STEP = 32  # bytes of a row that an instruction takes


def one(chip, experts, inner, cols, stored, local, rows, rule, marlin, held):
    """Return the run of a grouped product; experts: tokens of each. rows: of a tile.

    rule: each, order, maps, visit, last. held: share of weights in the last cache.
    """
    each, order, maps, visit, last = rule
    clock, handed, moved = [0] * chip.bundles, 0, [0.0] * len(chip.bandwidths)
    for tokens in experts:
        for _ in range(ceil(tokens / rows)):
            for _ in range(ceil(cols / COLUMNS)):
                clock[handed % chip.bundles] += 1
                handed += 1
                moved[0] += 8 * rows * COLUMNS * ceil(inner * chip.size / STEP)
                for level in range(1, chip.private + 1):
                    moved[level] += 2 * (rows + COLUMNS) * inner * chip.size
                moved[chip.private + 1] += (rows * chip.size + COLUMNS * of_b(chip)) * inner
    waves = max(clock)
    multiply = waves * 2 * rows * COLUMNS * inner / (chip.flops / chip.bundles)
    convert = waves * COLUMNS * inner * chip.instructions * marlin / (chip.issue / chip.bundles)
    total, weights = sum(experts), len(experts) * inner * cols * of_b(chip)
    c = total * stored * chip.output
    moved[chip.private + 1] += c
    for level in range(chip.private + 2, len(moved)):
        moved[level] = weights * (1 - held) + total * inner * chip.size + c
    times = [0.0] * (len(moved) + 2)
    times[0] = waves * each + multiply + convert
    times[len(moved) - 1] = weights * held / chip.bandwidths[-2]
    times[len(moved)] = moved[-1] / chip.bandwidths[-1]
    times[-1] = chip.launch + maps + visit * local + last * rows
    time = soft(times[:-1], order) + times[-1]
    power = chip.drive * 2 * total * inner * cols / (chip.peak * time)
    if power > 1:
        times = [t * power ** (1 / 3) for t in times[:-2]] + times[-2:]
        time = soft(times[:-1], order) + times[-1]
    return Run(time, times, moved, (rows, COLUMNS), 1, waves, handed / (waves * chip.bundles))
