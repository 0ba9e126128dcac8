"""The docks: one file per panel; each reads the document and owns no data."""
