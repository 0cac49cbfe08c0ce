"""Strategy notation (3.3): RC-{KP1}-{KP2}-d{DP}-p{LP} or CR-{KP1}-d{DP}-p{LP}, or d{DP} alone."""

DIGITS = "0123456789"


def degree(word):
    """Return a degree of parallelism, or None for a word that is none."""
    if word == "" or any(letter not in DIGITS for letter in word) or int(word) == 0:
        return None
    return int(word)


def parse(text):
    """Return (kernel, KP1, KP2, DP, LP), or None for a text that is no strategy."""
    words = text.split("-")
    kernel, kp1, kp2, rest = "", 1, 1, words
    if words[0] == "RC" and len(words) >= 3:
        kernel, kp1, kp2, rest = "RC", degree(words[1]), degree(words[2]), words[3:]
    elif words[0] == "CR" and len(words) >= 2:
        kernel, kp1, rest = "CR", degree(words[1]), words[2:]
    dp = lp = 1
    if rest and rest[0].startswith("d"):
        dp, rest = degree(rest[0][1:]), rest[1:]
    if rest and rest[0].startswith("p"):
        lp, rest = degree(rest[0][1:]), rest[1:]
    if rest or None in (kp1, kp2, dp, lp):
        return None
    return kernel, kp1, kp2, dp, lp
