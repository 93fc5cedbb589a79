"""Imported first: says what to do where there is no TensorFlow that the others could import."""

from tenon._need import need

need("tensorflow", "TensorFlow", "2.16")
