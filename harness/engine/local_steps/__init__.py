"""Training whose workers take steps alone and exchange, now and then, what their weights moved."""
