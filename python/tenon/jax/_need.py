"""Imported first: says what to do where there is no JAX that the others could import."""

from tenon._need import need

need("jax", "JAX", "0.8", ' (for NVIDIA GPUs: "jax[cuda13]")')
