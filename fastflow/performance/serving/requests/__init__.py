"""Requests: their lengths and arrivals."""
