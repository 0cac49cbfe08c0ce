"""The commands after their command lines are parsed."""
