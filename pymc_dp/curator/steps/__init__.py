"""The curator's samplers, one module each."""
