"""A language model that generates and learns in this process."""
