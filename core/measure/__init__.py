"""Running compiled candidates on a GPU, in a child process that may crash or hang."""
