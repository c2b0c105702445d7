"""Laws of compressors, controllers, profiles and activations, stated once for tests and command."""
