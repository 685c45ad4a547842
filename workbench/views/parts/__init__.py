"""Widgets, plots and pieces of text that pages are made of; they own no data."""
