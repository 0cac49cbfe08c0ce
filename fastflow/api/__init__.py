"""The functions of `import fastflow`, and what notebooks show of their results."""
