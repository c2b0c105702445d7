"""Laws of training: settings to ranks, checkpoints, what is watched."""
