"""Laws of the emulated network; each runs in namespaces of its own."""
