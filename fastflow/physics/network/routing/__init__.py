"""Routes between devices, and how many share a link."""
