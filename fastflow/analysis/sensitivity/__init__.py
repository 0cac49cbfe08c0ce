"""How far answers can be trusted."""
