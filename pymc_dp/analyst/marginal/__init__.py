"""Records integrated out: one module a way to do it (see ``strategy``), ``marginalize`` picks."""
