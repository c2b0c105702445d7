"""Emulated networks: namespaces, shaped links, and the proof that the shaping was in force."""
