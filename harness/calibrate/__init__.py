"""Constants of virtual time, fitted to this machine: short real collectives, compressors timed."""
