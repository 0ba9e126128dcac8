"""From a graph and chosen kernels to a compiled, verified library."""
