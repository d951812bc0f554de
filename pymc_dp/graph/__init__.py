"""Read a PyTensor graph: what one record adds to a statistic, ranges, sensitivities."""
