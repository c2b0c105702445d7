"""Settings of a run: checks of their values, and the frozen `Run` built from them."""
