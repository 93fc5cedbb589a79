"""Imported first: says what to do where there is no PyTorch that the others could import."""

from tenon._need import need

need("torch", "PyTorch", "2.10")
