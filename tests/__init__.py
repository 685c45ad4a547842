"""Tests, in folders named like the package's; `benchmarks` measures."""
