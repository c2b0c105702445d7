"""Virtual time: logical workers in one process, a cost model of the collectives, no packets."""
