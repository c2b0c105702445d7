"""Run all experiments of a paper with one command, and write their reports, claims and one page."""
