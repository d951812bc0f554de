"""Look once, infer exactly: a noised score as a release, and inference from it."""
