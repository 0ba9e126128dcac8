"""The engine: everything the command line and the window call. No Qt and no GPU library at import time."""
