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


def _explicit(array: Any) -> Any:
    """How an array is sharded, where that is a part of its type; None: it is whole, or XLA decides."""
    sharding: Any = getattr(jax.typeof(array), "sharding", None)
    if sharding is None or sharding.mesh.empty or not any(sharding.spec) or not hasattr(jax.sharding, "reshard"):
        return None
    return sharding


def _resharded(array: Any, mesh: Any, *axes: Any) -> Any:
    return jax.sharding.reshard(array, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes)))


def gathered(array: Any) -> Any:
    """Where shardings are explicit, they are a part of types: what XLA would gather for a custom call is gathered here,
    so that gradients are scattered again."""
    sharding = _explicit(array)
    return array if sharding is None else _resharded(array, sharding.mesh)


def scattered(results: Sequence[Any], batches: Sequence[Any]) -> tuple[Any, ...]:
    """Results of a batch, whose dimension is sharded again as it is in the arrays `batches`; jax.vmap counts on it."""
    for sharding in map(_explicit, batches):
        if sharding is not None and sharding.spec[0] is not None:
            return tuple(_resharded(r, sharding.mesh, sharding.spec[0]) for r in results)
    return tuple(results)


def spread(arrays: Sequence[Any]) -> list[Any]:
    """The arrays, varying over the same axes all of them. The gradient of one that did not is summed over the mesh."""
    arrays = [gathered(a) for a in arrays]
    axes = [_axes(a) for a in arrays]
    every = frozenset().union(*axes)
    missing = [tuple(sorted(every - own)) for own in axes]
    return [jax.lax.pcast(a, m, to="varying") if m else a for a, m in zip(arrays, missing, strict=True)]


def like(arrays: Sequence[Any]) -> dict[str, Any]:
    """What the type of a result is told that varies as the arrays do, which `spread` made alike."""
    if not arrays:
        return {}
    kind: Any = arrays[0] if isinstance(arrays[0], jax.core.ShapedArray) else jax.typeof(arrays[0])
    mesh = jax.sharding.get_abstract_mesh() if kind.sharding.mesh.empty else kind.sharding.mesh
    if mesh.empty:
        return {}
    name = "vma" if hasattr(kind, "vma") else "manual_axis_type"
    return {name: getattr(kind, name), "sharding": jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())}
