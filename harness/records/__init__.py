"""What a run leaves: the names, columns and writers of its files."""
