"""What `auto` stands for: the best strategy, layout or server of each point."""
