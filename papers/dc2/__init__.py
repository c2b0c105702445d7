"""DC2: delay-aware compression control (Abdelmoniem and Canini, 2021)."""
