"""Suites that measure the product against its peers and store what came out."""
