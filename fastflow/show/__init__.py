"""What a person reads on screen: tables, explanations and progress."""
