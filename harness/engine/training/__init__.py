"""What a rank trains: put together, stepped, timed, saved and taken up again."""
