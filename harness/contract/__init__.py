"""Laws of compressors, controllers, profiles and activations, for tests and `doctor --contract`."""
