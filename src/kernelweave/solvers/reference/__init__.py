"""The papers' own programs, solved by a general solver, for comparison."""
