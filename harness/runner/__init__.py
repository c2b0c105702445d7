"""One run from its directory to its verdict: processes followed, ended; doubts."""
