"""Local steps: workers step alone, and from time to time exchange how far their weights moved."""
