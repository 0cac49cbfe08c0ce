"""The simulation of a server, request by request."""
