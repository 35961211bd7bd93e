"""Loading a model by run, export, bundle or name."""
