"""Mistakes in a JSON document: fields that are gone, renamed or of another type, odd numbers, other lists."""

import copy

ODD = [
    None, True, False, -1, 0, 1, 2, 3, 7, 1.5, -0.5, 1e300, 10**9, 10**12, 10**30, float("inf"), float("nan"),
    "", "silu", "8", "x" * 999, [], [1], [0, 1], [True], ["x"], [[]], [None], {}, {"a": 1}, {"head_dim": 0},
]  # fmt: skip


def objects_in(document):
    """Every object and list of a document that has something in it."""
    found = [document] if document else []
    values = document.values() if isinstance(document, dict) else document
    for value in values:
        if isinstance(value, dict | list):
            found += objects_in(value)
    return found


def mutated(document, rng, mistakes=3):
    """A copy of a document with up to so many mistakes; rng: numpy's."""
    changed = copy.deepcopy(document)
    for _ in range(int(rng.integers(1, mistakes + 1))):
        places = objects_in(changed)
        if places:
            make_mistake(places[rng.integers(len(places))], rng)
    return changed


def make_mistake(place, rng):
    """Change a random entry of an object or a list."""
    if isinstance(place, list):
        number, kind = int(rng.integers(len(place))), rng.integers(4)
        if kind == 0:
            del place[number]
        elif kind == 1:
            place.append(place[number])
        else:
            place[number] = copy.deepcopy(ODD[rng.integers(len(ODD))])
        return
    name, kind = list(place)[rng.integers(len(place))], rng.integers(6)
    if kind == 0:
        del place[name]
    elif kind == 1:
        place[f"{name}_{rng.integers(3)}"] = place.pop(name)
    elif kind == 2 and isinstance(place[name], int | float):
        place[name] = place[name] * float(rng.choice([-1.0, 0.0, 0.5, 3.0, 1e6, 1e18]))
    elif kind == 3:
        other = list(place)[rng.integers(len(place))]
        place[name] = copy.deepcopy(place[other])
    else:
        place[name] = copy.deepcopy(ODD[rng.integers(len(ODD))])
