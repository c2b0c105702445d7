"""A gradient exchange: buckets of DDP, one thread that runs the algorithm, the other workers."""
