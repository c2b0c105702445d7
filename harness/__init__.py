"""Everything that touches the outside world: processes, networks, files, training."""
