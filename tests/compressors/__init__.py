"""Laws of the compressors."""
