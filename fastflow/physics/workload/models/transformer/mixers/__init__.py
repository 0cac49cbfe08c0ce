"""How layers of a transformer mix tokens, a file each: attention of all kinds, and linear-time mixers."""
