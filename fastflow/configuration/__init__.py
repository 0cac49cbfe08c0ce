"""From files and overrides to the model's inputs: Hydra, kept to this room, and what it says of mistakes."""
