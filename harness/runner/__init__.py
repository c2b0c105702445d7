"""One run over packets: its directory, processes, proofs and verdict."""
