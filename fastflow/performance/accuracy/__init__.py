"""How far such answers were off: classes of validation, and the table of their errors."""
