"""Web application: a page and an HTTP API for exported models.

The application uses a model only through the signatures of its export.
"""
