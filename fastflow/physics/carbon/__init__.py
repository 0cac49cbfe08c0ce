"""Emissions of making and running devices and systems, as masses of CO2 equivalents (docs/carbon.md)."""
