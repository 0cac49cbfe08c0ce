"""Encoders of images on devices of their own."""
