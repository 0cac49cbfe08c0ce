"""The nearest design within a budget (Equation 6's Project), as the quadratic program that it is."""

import numpy as np
import quadprog


def project(shares):
    """Minimise |x - shares|^2 over x >= 0 and sum(x) <= 1; shares: of one budget."""
    count = len(shares)
    constraints = np.column_stack([np.eye(count), -np.ones(count)])
    limits = np.append(np.zeros(count), -1.0)
    return quadprog.solve_qp(np.eye(count), np.asarray(shares, dtype=float), constraints, limits)[0]
