"""What is not exact: how figures and the model's own error vary, and what that makes of results."""
