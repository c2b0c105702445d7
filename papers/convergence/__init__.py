"""What each method costs in accuracy, on the network of the papers' CIFAR-10 experiments; ours."""
