"""The papers' own programs, for a general solver: to compare with."""
