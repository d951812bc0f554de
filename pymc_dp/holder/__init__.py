"""For data holders: bounds, sensitivities and releases of statistics."""
