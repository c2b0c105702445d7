"""DCT: dynamic communication thresholding (Gupta et al., 2021)."""
