"""Constants of virtual time, fitted to this machine from short collectives and compressions."""
