"""Measurements and failures, kept."""
