"""Laws of the exchange: its thread, error feedback, other workers."""
