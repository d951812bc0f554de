"""Work on other processes and machines: Dask, or anything with ``submit``."""
