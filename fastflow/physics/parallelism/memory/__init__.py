"""Memory of one device of a layout: weights, gradients, optimizer state, activations, buffers."""
