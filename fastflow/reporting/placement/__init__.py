"""Pictures of a placement: devices, links, and what loads them."""
