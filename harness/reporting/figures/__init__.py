"""All matplotlib figures of reports, in one style; no other package of the project draws."""
