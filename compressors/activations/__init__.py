"""Compression of activations and their gradients at the cuts of a model."""
