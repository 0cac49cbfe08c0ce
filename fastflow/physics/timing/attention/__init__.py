"""Times of fused attention: forward, backward, decoding."""
