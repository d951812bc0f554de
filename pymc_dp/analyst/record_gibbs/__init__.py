"""Gibbs over the records behind a release (Ju et al. 2022), with interweaving."""
