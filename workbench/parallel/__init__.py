"""Several processes that make one run together: collectives between them, and a watchdog over them."""
