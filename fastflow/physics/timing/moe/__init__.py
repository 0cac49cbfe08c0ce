"""Times of mixture-of-experts layers."""
