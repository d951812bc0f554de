"""Statistics of regressions, of one holder or several, integrated out."""
