"""From rows to centred kernels, for training and for new rows."""
