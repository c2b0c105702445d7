"""Our own study: compare controllers where rates change and where flows compete."""
