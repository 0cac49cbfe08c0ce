"""AGE, the micro-architecture generator: technology and budgets in, a chip out (Section 4)."""
