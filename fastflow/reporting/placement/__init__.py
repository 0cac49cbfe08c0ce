"""Pictures of a placement: devices, links, and loads."""
