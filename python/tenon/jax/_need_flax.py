"""Imported before Flax: says what to do where there is none that tenon.jax.nnx could be derived from."""

from tenon._need import need

need("flax", "Flax", "0.12")
