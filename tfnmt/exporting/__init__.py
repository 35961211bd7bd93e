"""SavedModels: writing them, and translating with them."""
