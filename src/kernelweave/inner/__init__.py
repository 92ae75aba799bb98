"""Inner problems of criteria: support vector machines, saddle points, correlations."""
