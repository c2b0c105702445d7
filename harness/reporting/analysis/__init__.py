"""Reads run directories and computes the metrics, ratios, tables and sentences of a report."""
