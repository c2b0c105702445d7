"""Puts any trainer, unmodified, under proven links: a command, once in every emulated node."""
