"""How tensors are sharded over a mesh of devices, and which collectives follow."""
