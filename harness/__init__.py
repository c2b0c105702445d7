"""Everything that touches the outside world: processes, networks, files, training."""

__version__ = "0.1.0"
