"""From a graph to a fusion plan: which nodes run in one kernel, and why the others do not."""
