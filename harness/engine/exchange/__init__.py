"""A gradient exchange: buckets of DDP, the lanes they take through a rank, the other workers."""
