"""Settings for curators' samplers, from public information or for a fee."""
