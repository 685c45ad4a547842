"""Puts this folder on the path, so that tests in folders find `contract.scripted`."""
