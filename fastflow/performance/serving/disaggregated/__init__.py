"""Disaggregated serving: prefill and decoding on separate pools."""
