"""The cost model held against the papers' timing tables: predicted beside published."""
