"""COVAP: overlapping-aware gradient compression (Meng et al., 2023)."""
