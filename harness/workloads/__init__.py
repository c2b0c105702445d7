"""What is trained: models, and the data that they learn from."""
