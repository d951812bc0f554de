"""Records in several places: sums where they are, noise where all come together."""
