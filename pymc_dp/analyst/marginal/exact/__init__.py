"""Noise on every record: each summed or integrated out by itself."""
