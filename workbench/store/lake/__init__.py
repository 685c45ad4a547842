"""The shared catalog: the same tables in DuckLake over PostgreSQL, for runs of several machines."""
