"""Run any trainer, unmodified, under proven links: its command starts once in every node."""
