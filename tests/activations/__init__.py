"""Laws of compressed activations."""
