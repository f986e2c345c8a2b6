"""Reports: the same comparison for the terminal and for files."""
