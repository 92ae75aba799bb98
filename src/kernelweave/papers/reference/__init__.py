"""What only the papers need: algorithms and bounds as they are printed."""
