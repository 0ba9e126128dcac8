"""cuBLASLt and cuDNN, measured beside our candidates and never assumed."""
