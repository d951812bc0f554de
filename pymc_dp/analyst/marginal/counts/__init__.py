"""Records of finitely many states by their table of counts."""
