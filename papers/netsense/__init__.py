"""NetSenseML: network-adaptive compression (Wang et al., 2025)."""
