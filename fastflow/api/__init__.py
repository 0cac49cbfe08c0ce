"""The functions of `import fastflow`, and the display of their results in notebooks."""
