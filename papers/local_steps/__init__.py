"""Local steps: which rate they need, and what they cost in accuracy, against published numbers."""
