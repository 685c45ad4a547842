"""From a finished step to rows of tables, and back."""
