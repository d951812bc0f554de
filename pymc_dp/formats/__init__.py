"""What is written of a release: one JSON format for all kinds, checked when it is made and read."""
