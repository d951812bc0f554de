"""Scripts that let other tools release thousands of numbers, each run by the tool's own Python."""
