"""Outputs of benchmarks of servers: their requests, and the times that a client measured."""
