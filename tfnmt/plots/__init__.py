"""Plots for TensorBoard and the documentation, as matplotlib figures."""
