"""Model architectures and their published compute times."""
