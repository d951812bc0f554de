"""Several holders' statistics, normal features (Alparslan et al. 2023)."""
