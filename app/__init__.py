"""The web application: a page and an API in front of exported models, known by their signatures."""
