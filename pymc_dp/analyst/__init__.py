"""For analysts, who hold a release: declare it, and sample what it says."""
