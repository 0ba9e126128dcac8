"""From kernels to shared libraries, through nvcc and a content-addressed cache."""
