"""From YAML files and overrides to inputs of the model: Hydra, and the messages of its errors."""
