"""Sums over records by their normal law, and how far off that is."""
