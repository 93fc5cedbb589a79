"""Meshes. In shard_map JAX knows of each array over which axes of the mesh it varies, and wants to be told that of
results; where axes are explicit, it knows how each array is sharded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax


def _axes(array: Any) -> frozenset[Any]:
    kind: Any = jax.typeof(array)
    if hasattr(kind, "vma"):  # before JAX 0.10
        return frozenset(kind.vma)
    return frozenset(kind.manual_axis_type.varying)


def gathered(array: Any) -> Any:
    """Where shardings are explicit, they are a part of types: what XLA would gather for a custom call is gathered here,
    so that gradients are scattered again."""
    sharding: Any = getattr(jax.typeof(array), "sharding", None)
    if sharding is None or sharding.mesh.empty or not any(sharding.spec) or not hasattr(jax.sharding, "reshard"):
        return array
    return jax.sharding.reshard(array, jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec()))


def spread(arrays: Sequence[Any]) -> list[Any]:
    """The arrays, varying over the same axes all of them. The gradient of one that did not is summed over the mesh."""
    arrays = [gathered(a) for a in arrays]
    axes = [_axes(a) for a in arrays]
    every = frozenset().union(*axes)
    missing = [tuple(sorted(every - own)) for own in axes]
    return [jax.lax.pcast(a, m, to="varying") if m else a for a, m in zip(arrays, missing, strict=True)]


def like(array: Any) -> dict[str, Any]:
    """What the type of a result is told that varies as an array does."""
    kind: Any = array if isinstance(array, jax.core.ShapedArray) else jax.typeof(array)
    mesh = jax.sharding.get_abstract_mesh() if kind.sharding.mesh.empty else kind.sharding.mesh
    if mesh.empty:
        return {}
    name = "vma" if hasattr(kind, "vma") else "manual_axis_type"
    return {name: getattr(kind, name), "sharding": jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())}
