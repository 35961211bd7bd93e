"""HTTP: the routes, and what guards them."""
