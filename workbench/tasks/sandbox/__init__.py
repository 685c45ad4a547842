"""Sandbox of verifiers: the fork server that judges, and what its processes are kept from.

The server is started with nothing of the package imported but this folder, which needs the standard library alone.
"""
