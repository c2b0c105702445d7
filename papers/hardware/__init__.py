"""Hardware: what others measured on their own clusters, and testbeds that it is predicted from."""
