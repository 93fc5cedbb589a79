"""Imported first: says what to do where there is no NumPy that the others could import."""

from tenon._need import need

need("numpy", "NumPy", "1.23")
