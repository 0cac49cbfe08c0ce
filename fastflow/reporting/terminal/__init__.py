"""Output on the screen: tables, breakdowns and progress."""
