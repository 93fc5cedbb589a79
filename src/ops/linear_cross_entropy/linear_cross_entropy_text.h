/* What linear_cross_entropy does to a chunk of logits and to rows, as formulas. Rows are r, columns of a chunk n, those
 * of all chunks v. A target `t` is `dead` if it is ignore_index, and `bad` if it is no class, which makes NaN: the CPU
 * has refused it before. */
#ifndef TNI_LINEAR_CROSS_ENTROPY_TEXT_H
#define TNI_LINEAR_CROSS_ENTROPY_TEXT_H

enum {
    TNI_TOKEN_SPOTS,
    TNI_TOKEN_CLEAR,
    TNI_TOKEN_READ,
    TNI_TOKEN_MERGE,
    TNI_TOKEN_LOSSES,
    TNI_TOKEN_TOTAL,
    TNI_TOKEN_FACTORS,
    TNI_TOKEN_BACK,
    TNI_TOKEN_SLOPE,
    TNI_TOKEN_COLUMNS,
    TNI_TOKEN_ROUND,
    TNI_TOKEN_FORMULAS
};

#define TNI_TOKEN_TARGET "t = i64(target); dead = t == ignore_index; bad = not dead and (t < 0 or t >= classes); "
#define TNI_TOKEN_CLASSES "classes: int = 1, ignore_index: int = -100"
#define TNI_TOKEN_OPTIONS TNI_TOKEN_CLASSES ", label_smoothing: float = 0.0, z_loss: float = 0.0"
/* The weight of the target, and the sum of all. */
#define TNI_TOKEN_WEIGHTS \
    "s = f64(share) if has(share) else 1; every = sum(f64(weight), v) if has(weight) else classes; "
/* l, the logits, of h, which is a product, with softcap by itself, else over the temperature. */
#define TNI_TOKEN_CAP "softcap: float = 0.0, temperature: float = 1.0"
#define TNI_TOKEN_LOGITS                                                                                              \
    "i = h + (b if softcap > 0 else b / temperature) if has(b) else h; k = tanh(i / softcap) if softcap > 0 else i; " \
    "l = softcap * k / temperature if softcap > 0 else i; "

static const char *const tni_token_formulas[TNI_TOKEN_FORMULAS] = {
    /* at: the target's column, counted from the first of the next chunk, or from behind the last; far below all columns
     * where it is ignored. index: a class that there is. */
    [TNI_TOKEN_SPOTS] = "token_spots<I: i32 i64>(target: I[r], " TNI_TOKEN_CLASSES ", behind: bool = false) "
                        "-> at: i64[r], index: i64[r] : "
                        "t = i64(target); i = clamp(t, -1, classes) - classes if behind else clamp(t, -1, classes); "
                        "at = -2251799813685248 if t == ignore_index else i; index = clamp(t, 0, classes - 1)",
    /* Of no columns yet. */
    [TNI_TOKEN_CLEAR] = "token_clear<I: i32 i64>(target: I[r], out: dtype) "
                        "-> most: out[r], powers: out[r], aimed: out[r], mean: out[r], sum: out[r] : "
                        "zero = where(target == target, 0, 1); "
                        "most = zero - inf; powers = zero; aimed = zero; mean = zero; sum = zero",
    /* Of the columns of a chunk: top, the largest logit; powers, sum(exp(l - top)); mean, sum(exp(l - top) * l);
     * aimed, the target's logit; sum, sum(weight * l). */
    [TNI_TOKEN_READ] =
        "token_read(h: T[r, n], at: i64[r], b: T[n]?, weight: f32[n]?, " TNI_TOKEN_CAP
        ", entropy: bool = true, smooth: bool = true) -> top: acc(T)[r], powers: acc(T)[r], aimed: acc(T)[r], "
        "mean: acc(T)[r], sum: acc(T)[r] : " TNI_TOKEN_LOGITS
        "largest = max(l, n); from = 0 if largest == -inf else largest; e = exp(l - from); top = largest; "
        "powers = sum(e, n); mean = sum(0 if l == -inf else e * l, n) if entropy else largest; "
        "aimed = sum(where(index(n) == at, l, 0), n); "
        "sum = sum(l * weight if has(weight) else l, n) if smooth else largest",
    /* The same of all columns so far. It has rows alone: where a row of logits takes several blocks, one of them would
     * read what another one has updated. */
    [TNI_TOKEN_MERGE] =
        "token_merge(top: A[r], new_powers: A[r], new_aimed: A[r], new_mean: A[r], new_sum: A[r], at: i64[r]!, "
        "most: A[r]!, powers: A[r]!, aimed: A[r]!, mean: A[r]!, sum: A[r]!, columns: int = 0) : "
        "both = maximum(most, top); base = 0 if both == -inf else both; "
        "old = exp(most - base); new = 0 if top == -inf else exp(top - base); next = at - columns; "
        "q = powers * old + new_powers * new; m = mean * old + new_mean * new; a = aimed + new_aimed; "
        "s = sum + new_sum; at = next; most = both; powers = q; aimed = a; mean = m; sum = s",
    /* log p = l - most - log_sum: no large numbers cancel. */
    [TNI_TOKEN_LOSSES] =
        "token_losses<I: i32 i64>(target: I[r], most: A[r], powers: A[r], aimed: A[r], mean: A[r], sum: A[r], "
        "share: f32[r]?, weight: f32[v]?, " TNI_TOKEN_OPTIONS
        ") -> loss: A[r], log_prob: A[r], entropy: A[r], lse: A[r], log_sum: A[r], counted: A[r] : " //
    TNI_TOKEN_TARGET TNI_TOKEN_WEIGHTS
        "log_sum = log(powers); total = most + log_sum; lse = total; p = (aimed - most) - log_sum; "
        "hard = (1 - label_smoothing) * s * -p; "
        "soft = hard + label_smoothing / classes * (every * total - sum) if label_smoothing > 0 else hard; "
        "all = soft + z_loss * total * total if z_loss != 0 else soft; "
        "loss = 0 if dead else nan if bad else all; log_prob = 0 if dead else nan if bad else p; "
        "entropy = 0 if dead else total - mean / powers; counted = 0 if dead else s",
    /* unit: what gradients of logits are multiplied by, back: what they are then too large by. */
    [TNI_TOKEN_TOTAL] =
        "token_total(loss: A[r], counted: A[r], mean: bool = true) -> total: A[], unit: A[], back: A[] : "
        "n = count(loss); w = sum(counted); total = sum(loss) / w if mean else sum(loss); "
        "unit = n / w if mean else 1 + 0 * w; back = 1 / maximum(n + 0 * w, 1) if mean else 1 + 0 * w",
    /* The gradient of l is all * p + soft * (whole * p - weight); at the target, where all * p - hard nearly cancels,
     * aimed + soft * (whole * p - weight). whole: the sum of the weights. */
    [TNI_TOKEN_FACTORS] =
        "token_factors<I: i32 i64>(target: I[r], lse: A[r], log_prob: A[r], share: f32[r]?, weight: f32[v]?, "
        "unit: A[]?, dloss: A[r]?, dlog_prob: A[r]?, " TNI_TOKEN_OPTIONS
        ") -> all: A[r], aimed: A[r], soft: A[r], whole: A[r] : " //
    TNI_TOKEN_TARGET TNI_TOKEN_WEIGHTS
        "d = dloss if has(dloss) else unit if has(unit) else 0; k = dlog_prob if has(dlog_prob) else 0; "
        "f = label_smoothing / classes; hard = d * (1 - label_smoothing) * s - k; "
        "rest = d * (2 * z_loss * lse); p = minimum(log_prob, 0); whole = every + 0 * t; "
        "all = 0 if dead else nan if bad else hard + rest; "
        "aimed = 0 if dead else hard * expm1(p) + rest * exp(p); soft = 0 if dead else d * f",
    [TNI_TOKEN_BACK] = "token_back(at: i64[r]!, columns: int = 0) : at = at + columns",
    /* No p is above 1, whatever lse was rounded to. */
    [TNI_TOKEN_SLOPE] =
        "token_slope(h: T[r, n]!, at: i64[r], most: acc(T)[r], log_sum: acc(T)[r]?, all: acc(T)[r], aimed: "
        "acc(T)[r], "
        "soft: acc(T)[r]?, whole: acc(T)[r]?, spread: acc(T)[r]?, entropy: acc(T)[r]?, b: T[n]?, weight: "
        "f32[n]?, " TNI_TOKEN_CAP ") : " TNI_TOKEN_LOGITS "j = l - most; "
        "g = minimum(j - log_sum if has(log_sum) else j, 0); p = exp(g); "
        "s = aimed if index(n) == at else all * p; "
        "d = s - where(spread != 0 and p > 0, spread * p * (g + entropy), 0) if has(spread) else s; "
        "f = d + soft * (whole * p - (weight if has(weight) else 1)) if has(soft) else d; "
        "w = exp(-2 * abs(i / softcap)); "
        "u = (f * 4 * w / ((1 + w) * (1 + w)) if softcap > 0 else f) / temperature; "
        "h = 0 if at < -1125899906842624 else u",
    [TNI_TOKEN_COLUMNS] =
        "token_columns(h: T[r, n], back: acc(T)[]?) -> y: T[n] : s = sum(h, r); y = s * back if has(back) else s",
    [TNI_TOKEN_ROUND] = "token_round(x: A[s], out: dtype) -> y: out[s] : x",
};

#endif
