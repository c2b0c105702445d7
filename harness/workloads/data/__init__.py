"""Data sets: loaders of published files, and real data that every machine has."""
