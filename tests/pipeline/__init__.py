"""Laws of pipelines."""
