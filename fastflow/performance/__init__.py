"""The performance model: from inputs to a predicted iteration, or served token."""
