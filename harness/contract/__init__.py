"""Laws of compressors, controllers, profiles and activations, shared by tests and command."""
