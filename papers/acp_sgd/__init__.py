"""ACP-SGD: accelerated power iteration (Zhang et al., 2023)."""
