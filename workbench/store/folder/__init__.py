"""A store as a folder: commits, their writer, reader and compaction."""
