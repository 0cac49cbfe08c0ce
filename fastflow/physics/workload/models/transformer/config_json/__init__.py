"""`model.config`: the unchanged config.json that is published with a language model's weights."""
