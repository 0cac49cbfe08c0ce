"""DPE, first half: strategies, and the compute graph sharded by them (Sections 3.3 and 5.1)."""
