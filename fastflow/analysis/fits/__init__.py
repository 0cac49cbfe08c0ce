"""Fits: the least number of devices on which a model trains or serves, and what makes it fit fewer."""
