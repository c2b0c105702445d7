"""Virtual time held against real packets, by method and by controller; ours."""
