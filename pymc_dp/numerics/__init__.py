"""Numerics on plain arrays, and how compiled pieces are joined and kept."""
