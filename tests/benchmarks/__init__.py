"""Speed and learning, measured: `python -m tests.benchmarks NAME` from a clone. A file with a function `bench` is a bench."""
