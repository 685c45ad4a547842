"""Tables and figures of recorded runs; no drawing."""
