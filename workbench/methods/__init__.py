"""One paper, one file: the methods of the catalog."""
