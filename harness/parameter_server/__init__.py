"""A parameter server: it holds the model on a node of its own, trainers pull it and push to it."""
