"""Laws on foreign commands over proven links."""
