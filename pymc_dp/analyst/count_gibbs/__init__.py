"""Gibbs over tables of counts."""
