"""DPE, second half: what communication costs on the system's network (Section 6.4)."""
