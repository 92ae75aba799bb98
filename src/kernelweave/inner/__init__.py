"""Problems inside criteria: support vector machines, saddle points, correlations."""
