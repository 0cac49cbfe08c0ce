"""Prefill and decoding on pools of their own."""
