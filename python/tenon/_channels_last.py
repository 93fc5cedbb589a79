"""Formulas that layers of several frameworks share: the table's operators have the channels in second place."""

GROUP_NORM = """
group_norm(x: T[n, *s, c], gamma: W[c]?, beta: W[c]?, groups: int, eps: float = 1e-5) -> y: T[n, *s, c]
    where c % groups == 0 :
    t = (x - mean(x, axis=[c / groups, s])) * rsqrt(var(x, axis=[c / groups, s]) + eps)
    u = t * gamma if has(gamma) else t
    y = u + beta if has(beta) else u
"""
