"""Published measurements on other clusters, and the testbeds from which we predict them."""
