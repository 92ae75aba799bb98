"""Parts of the mixture of experts."""
