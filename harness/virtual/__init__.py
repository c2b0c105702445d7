"""Virtual time: logical workers in one process, and a cost model of collectives without packets."""
