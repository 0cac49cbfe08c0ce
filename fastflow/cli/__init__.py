"""The commands: from Hydra to the output on the screen and the files."""
