"""Simulation-based calibration: parameters and releases that the model draws, and fits of these."""
