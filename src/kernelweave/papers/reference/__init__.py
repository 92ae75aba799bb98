"""Methods that only the papers need."""
