"""Encoders: transformers of which no token predicts the next, alone or as the vision tower of a model."""
