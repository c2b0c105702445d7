"""Emulated networks: namespaces, shaped links, and the proof that shaping was in force."""
