"""Our own study: compare virtual time with real packets, by method and by controller."""
