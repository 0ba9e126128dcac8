"""Advice on the model itself, with measured prices (paper section 4.3, system-friendly model design)."""
