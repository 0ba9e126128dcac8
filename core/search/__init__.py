"""From a workload and a GPU to ranked candidates."""
