"""Data sets: real loaders that say what is missing, and real data every machine has."""
