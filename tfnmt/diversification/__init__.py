"""Data diversification: its stages, the processes that they run in, and a forecast of the end."""
