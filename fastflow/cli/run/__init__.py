"""What each command does once its line is read."""
