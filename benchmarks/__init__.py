"""Benchmarks: `python -m benchmarks [name ...]`; each module's `main` returns a list of rows."""
