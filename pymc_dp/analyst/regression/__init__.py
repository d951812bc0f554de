"""Linear regression from noisy sufficient statistics."""
