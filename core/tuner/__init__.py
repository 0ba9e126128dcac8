"""The tuning job: drives search, build and measure, and tells listeners what happens."""
