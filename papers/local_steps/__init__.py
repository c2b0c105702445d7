"""Local steps: the link rate they need and their cost in accuracy, against published numbers."""
