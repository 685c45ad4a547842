"""Asking a run for something: requests, the inbox where they wait, and the changes they make."""
