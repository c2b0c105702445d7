"""Makes reports from run directories: tables, figures, web pages and verdicts on claims."""
