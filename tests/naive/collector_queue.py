"""Eight devices that take cases from a queue and share a file of rows, a step of one device at a time."""


def deal(run_s, pause_s, writing_s, devices=8, retry_s=0.1):
    """Return each case's device, and when its run starts."""
    now, has_row = [0.0] * devices, [False] * devices
    cases, left, unlocked = [], list(writing_s), 0.0
    while len(cases) < len(run_s):
        device = min(range(devices), key=lambda each: now[each])
        if has_row[device] and now[device] < unlocked:
            now[device] += retry_s
        elif has_row[device]:
            now[device] = unlocked = now[device] + left.pop(0)
            has_row[device] = False
        else:
            start = now[device] + pause_s
            now[device] = start + run_s[len(cases)]
            has_row[device] = True
            cases.append((device, start))
    return cases


def left_in_readings(cases, run_s, more_w, every_s, mean_s, tick_s):
    """Return the mean power of the runs before, in the time of each reading of each case."""
    rows = []
    for case, (device, start) in enumerate(cases):
        before = [other for other in range(case) if cases[other][0] == device]
        readings = []
        for number in range(round(mean_s / every_s)):
            first, total = start + number * every_s - mean_s, 0.0
            for tick in range(round(mean_s / tick_s)):
                time = first + (tick + 0.5) * tick_s
                running = [b for b in before if cases[b][1] <= time < cases[b][1] + run_s[b]]
                total += sum(more_w[b] for b in running)
            readings.append(total * tick_s / mean_s)
        rows.append(readings)
    return rows
