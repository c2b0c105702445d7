"""All experiments of a paper with one command: runs, reports, claims, one page."""
