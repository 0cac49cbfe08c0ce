"""Serving: what a server's iterations take, and what requests see of them: simulated, or in a fast form."""
