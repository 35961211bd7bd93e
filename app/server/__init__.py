"""HTTP server: routes, middleware, request checks, metrics and the server process."""
