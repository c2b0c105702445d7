"""Our own study: each method's cost in accuracy, on the papers' CIFAR-10 network."""
