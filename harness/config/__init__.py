"""What a run is told: values that are checked, and the frozen run made of them."""
