"""A model looked into: what it computes, by the names that its own code has."""
