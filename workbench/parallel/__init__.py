"""Data parallel: several processes of one run, their collectives, and a watchdog over them."""
