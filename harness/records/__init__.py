"""Records of a run: names, columns and writers of its files."""
