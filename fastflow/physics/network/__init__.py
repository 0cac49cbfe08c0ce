"""DPE, second half: the cost of communication on the system's network (Section 6.4)."""
