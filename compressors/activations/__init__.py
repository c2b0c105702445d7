"""Compression of what crosses a cut of a model: activations forward, their gradients backward."""
