"""Figures in one look: records of runs in, matplotlib Figures out; nothing else draws."""
