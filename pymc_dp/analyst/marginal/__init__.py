"""Records integrated out: one folder a way to do it (see ``strategy``), ``marginalize`` picks."""
