"""One holder's statistics by their normal law (Bernstein & Sheldon 2019)."""
