/* Every primitive of formulas, one row each. This list is all that a primitive touches (docs/adding-a-primitive.md).
 * Whoever includes it defines PRIMITIVE before and takes the columns that it needs:
 *
 *     id      TNI_P_<id>
 *     value   VALUE(…): the reference, in double, of a, b and c
 *     real    the loop over floats on the CPU
 *                 VECTOR(f), VECTOR_2(f)    f_<f> of cpu/functions.h, of one vector or two
 *                 SCALAR(…), SCALAR_2(…)    an expression of a, and b; F(name) is the C library's function
 *                 TEST(<)                   a comparison
 *                 CHOICE                    of where
 *                 REFERENCE                 the value above, element by element
 *     whole   the loop over 64-bit integers: INTEGER(…), INTEGER_2(…), TEST, CHOICE, REFERENCE
 *     truth   the loop over truth values: TRUTH(…), TRUTH_2(…), CHOICE
 *     coarse  COARSE(f): the vector function where the result is rounded to bf16, of which 8 bits are left
 *     …       fields of tni_prim_row, by name
 *
 * NONE: there is no such loop, and none is needed. */
#ifdef PRIMITIVE

/* clang-format off */

/* ---- what the language writes in ways of its own ----------------------------------------------------------------- */

/* value */
PRIMITIVE(CONST, NONE, NONE, NONE, NONE, NONE, .name = "a number", .kind = TNI_BUILT_IN)
/* ref: input of the contract */
PRIMITIVE(INPUT, NONE, NONE, NONE, NONE, NONE, .name = "an input", .kind = TNI_BUILT_IN)
/* ref: attribute of the contract, a number or a flag */
PRIMITIVE(ATTR, NONE, NONE, NONE, NONE, NONE, .name = "an attribute", .kind = TNI_BUILT_IN)
/* ref: attribute with choices; value: which one */
PRIMITIVE(ATTR_IS, NONE, NONE, NONE, NONE, NONE, .name = "a choice", .kind = TNI_BUILT_IN)
/* ref: optional input */
PRIMITIVE(HAS, NONE, NONE, NONE, NONE, NONE, .name = "has", .kind = TNI_BUILT_IN)
/* ref: optional attribute */
PRIMITIVE(HAS_ATTR, NONE, NONE, NONE, NONE, NONE, .name = "has", .kind = TNI_BUILT_IN)
/* ref: the seed's input; value: stream */
PRIMITIVE(RAND, NONE, NONE, NONE, NONE, NONE, .name = "rand", .kind = TNI_BUILT_IN, .effort = TNI_DEAR)
/* argument 0: of what; kind: tni_reach */
PRIMITIVE(COUNT, NONE, NONE, NONE, NONE, NONE, .name = "count", .arity = 1, .kind = TNI_BUILT_IN)
/* kind: tni_reach, of which dimensions; ref: the items of the formula's shapes that it has, as bits; -1: all */
PRIMITIVE(INDEX, NONE, NONE, NONE, NONE, NONE, .name = "index", .kind = TNI_BUILT_IN)
/* argument 0: whose shape it has; kind: tni_reach. A call's passes have INDEX instead */
PRIMITIVE(INDEX_IN, NONE, NONE, NONE, NONE, NONE, .name = "index", .arity = 1, .kind = TNI_BUILT_IN)
/* ref: tni_coarse of the graph, an operator of the table, on whole tensors; its arguments are as many as that says */
PRIMITIVE(CALL, NONE, NONE, NONE, NONE, NONE, .name = "a call", .arity = 1, .kind = TNI_BUILT_IN, .effort = TNI_HEAVY)
/* kind: the tn_type */
PRIMITIVE(CAST, NONE, NONE, NONE, NONE, NONE, .name = "a cast", .arity = 1, .kind = TNI_BUILT_IN, .grad = {"d"})
/* Parts, along one item; kind: which of the graph's windows. Result i is element begin + i of the argument, and 0 where
 * there is none */
PRIMITIVE(TAKE, NONE, NONE, NONE, NONE, NONE, .name = "window", .arity = 1, .kind = TNI_BUILT_IN,
          .typing = TNI_TYPED_FIRST)
/* the last element first */
PRIMITIVE(FLIP, NONE, NONE, NONE, NONE, NONE, .name = "flip", .arity = 1, .kind = TNI_BUILT_IN,
          .typing = TNI_TYPED_FIRST)
/* the first `begin` elements are those of the first argument, the others of the second */
PRIMITIVE(JOIN, NONE, NONE, NONE, NONE, NONE, .name = "join", .arity = 2, .kind = TNI_BUILT_IN)

/* ---- one argument ------------------------------------------------------------------------------------------------ */

/* What no gradient flows through. A call's graph has its argument instead: no loop of it is ever run. */
PRIMITIVE(DETACH, VALUE(a), NONE, NONE, NONE, NONE, .name = "detach", .arity = 1, .typing = TNI_TYPED_FIRST)
PRIMITIVE(NEG, VALUE(-a), VECTOR(neg), INTEGER(wrap_sub(0, a)), NONE, NONE,
          .name = "-", .arity = 1, .binds = 11, .typing = TNI_TYPED_SAME, .wraps = true,
          .grad = {"-d"}, .cuda = "-($a)", .torch = "neg")
PRIMITIVE(ABS, VALUE(fabs(a)), VECTOR(abs), INTEGER(a < 0 ? wrap_sub(0, a) : a), NONE, NONE,
          .name = "abs", .arity = 1, .typing = TNI_TYPED_SAME,
          .grad = {"d * sign(a)"}, .cuda = "tn_abs($a)", .torch = "abs")
PRIMITIVE(SIGN, VALUE(a != a ? a : (a > 0) - (a < 0)), VECTOR(sign), INTEGER((a > 0) - (a < 0)), NONE, NONE,
          .name = "sign", .arity = 1, .typing = TNI_TYPED_SAME,
          .cuda = "tn_sign($a)", .torch = "_sign")
PRIMITIVE(FLOOR, VALUE(floor(a)), SCALAR(F(floor)(a)), INTEGER(a), NONE, NONE,
          .name = "floor", .arity = 1, .typing = TNI_TYPED_SAME,
          .cuda = "tn_floor($a)", .torch = "floor")
PRIMITIVE(ROUND, VALUE(nearbyint(a)), SCALAR(F(nearbyint)(a)), INTEGER(a), NONE, NONE,
          .name = "round", .arity = 1, .typing = TNI_TYPED_SAME,
          .cuda = "tn_round($a)", .torch = "round")
PRIMITIVE(CEIL, VALUE(ceil(a)), SCALAR(F(ceil)(a)), INTEGER(a), NONE, NONE,
          .name = "ceil", .arity = 1, .typing = TNI_TYPED_SAME,
          .cuda = "tn_ceil($a)", .torch = "ceil")
PRIMITIVE(TRUNC, VALUE(trunc(a)), SCALAR(F(trunc)(a)), INTEGER(a), NONE, NONE,
          .name = "trunc", .arity = 1, .typing = TNI_TYPED_SAME,
          .cuda = "tn_trunc($a)", .torch = "trunc")
PRIMITIVE(SQRT, VALUE(sqrt(a)), VECTOR(sqrt), NONE, NONE, NONE,
          .name = "sqrt", .arity = 1, .typing = TNI_TYPED_FLOAT, .effort = TNI_DEAR,
          .grad = {"d * 0.5 / y"}, .cuda = "tn_sqrt($a)", .coarse = "tn_sqrt", .torch = "sqrt")
PRIMITIVE(RSQRT, VALUE(1 / sqrt(a)), VECTOR(rsqrt), NONE, NONE, NONE,
          .name = "rsqrt", .arity = 1, .typing = TNI_TYPED_FLOAT, .effort = TNI_DEAR,
          .grad = {"d * (-0.5 * y * y * y)"}, .cuda = "tn_rsqrt($a)", .torch = "rsqrt")
PRIMITIVE(EXP, VALUE(exp(a)), VECTOR(exp), NONE, NONE, COARSE(coarse_exp),
          .name = "exp", .arity = 1, .typing = TNI_TYPED_FLOAT, .effort = TNI_HEAVY,
          .grad = {"d * y"}, .cuda = "tn_exp($a)", .coarse = "tn_exp", .torch = "exp")
PRIMITIVE(LOG, VALUE(log(a)), VECTOR(log), NONE, NONE, NONE,
          .name = "log", .arity = 1, .typing = TNI_TYPED_FLOAT, .effort = TNI_HEAVY,
          .grad = {"d / a"}, .cuda = "tn_log($a)", .torch = "log")
PRIMITIVE(EXP2, VALUE(exp2(a)), VECTOR(exp2), NONE, NONE, NONE,
          .name = "exp2", .arity = 1, .typing = TNI_TYPED_FLOAT, .effort = TNI_HEAVY,
          .grad = {"d * (0.6931471805599453 * y)"}, .cuda = "tn_exp2($a)", .torch = "exp2")
PRIMITIVE(LOG2, VALUE(log2(a)), VECTOR(log2), NONE, NONE, NONE,
          .name = "log2", .arity = 1, .typing = TNI_TYPED_FLOAT, .effort = TNI_HEAVY,
          .grad = {"d * 1.4426950408889634 / a"}, .cuda = "tn_log2($a)", .torch = "log2")
PRIMITIVE(LOG10, VALUE(log10(a)), VECTOR(log10), NONE, NONE, NONE,
          .name = "log10", .arity = 1, .typing = TNI_TYPED_FLOAT, .effort = TNI_HEAVY,
          .grad = {"d * 0.4342944819032518 / a"}, .cuda = "tn_log10($a)", .torch = "log10")
PRIMITIVE(LOG1P, VALUE(log1p(a)), VECTOR(log1p), NONE, NONE, NONE,
          .name = "log1p", .arity = 1, .typing = TNI_TYPED_FLOAT, .effort = TNI_HEAVY,
          .grad = {"d / (1 + a)"}, .cuda = "tn_log1p($a)", .torch = "log1p")
PRIMITIVE(EXPM1, VALUE(expm1(a)), VECTOR(expm1), NONE, NONE, NONE,
          .name = "expm1", .arity = 1, .typing = TNI_TYPED_FLOAT, .effort = TNI_HEAVY,
          .grad = {"d * (y + 1)"}, .cuda = "tn_expm1($a)", .torch = "expm1")
PRIMITIVE(SIN, VALUE(sin(a)), VECTOR(sin), NONE, NONE, NONE,
          .name = "sin", .arity = 1, .typing = TNI_TYPED_FLOAT, .effort = TNI_HEAVY, .calls_libm = true,
          .grad = {"d * cos(a)"}, .cuda = "tn_sin($a)", .torch = "sin")
PRIMITIVE(COS, VALUE(cos(a)), VECTOR(cos), NONE, NONE, NONE,
          .name = "cos", .arity = 1, .typing = TNI_TYPED_FLOAT, .effort = TNI_HEAVY, .calls_libm = true,
          .grad = {"-(d * sin(a))"}, .cuda = "tn_cos($a)", .torch = "cos")
PRIMITIVE(TAN, VALUE(tan(a)), VECTOR(tan), NONE, NONE, NONE,
          .name = "tan", .arity = 1, .typing = TNI_TYPED_FLOAT, .effort = TNI_HEAVY, .calls_libm = true,
          .grad = {"d * (1 + y * y)"}, .cuda = "tn_tan($a)", .torch = "tan")
PRIMITIVE(ASIN, VALUE(asin(a)), VECTOR(asin), NONE, NONE, NONE,
          .name = "asin", .arity = 1, .typing = TNI_TYPED_FLOAT, .effort = TNI_HEAVY,
          .grad = {"d * rsqrt((1 - a) * (1 + a))"}, .cuda = "tn_asin($a)", .torch = "asin")
PRIMITIVE(ACOS, VALUE(acos(a)), VECTOR(acos), NONE, NONE, NONE,
          .name = "acos", .arity = 1, .typing = TNI_TYPED_FLOAT, .effort = TNI_HEAVY,
          .grad = {"-(d * rsqrt((1 - a) * (1 + a)))"}, .cuda = "tn_acos($a)", .torch = "acos")
PRIMITIVE(ATAN, VALUE(atan(a)), VECTOR(atan), NONE, NONE, NONE,
          .name = "atan", .arity = 1, .typing = TNI_TYPED_FLOAT, .effort = TNI_HEAVY,
          .grad = {"d / (1 + a * a)"}, .cuda = "tn_atan($a)", .torch = "atan")
PRIMITIVE(SINH, VALUE(sinh(a)), VECTOR(sinh), NONE, NONE, NONE,
          .name = "sinh", .arity = 1, .typing = TNI_TYPED_FLOAT, .effort = TNI_HEAVY,
          .grad = {"d * cosh(a)"}, .cuda = "tn_sinh($a)", .torch = "sinh")
PRIMITIVE(COSH, VALUE(cosh(a)), VECTOR(cosh), NONE, NONE, NONE,
          .name = "cosh", .arity = 1, .typing = TNI_TYPED_FLOAT, .effort = TNI_HEAVY,
          .grad = {"d * sinh(a)"}, .cuda = "tn_cosh($a)", .torch = "cosh")
PRIMITIVE(TANH, VALUE(tanh(a)), VECTOR(tanh), NONE, NONE, NONE,
          .name = "tanh", .arity = 1, .typing = TNI_TYPED_FLOAT, .effort = TNI_HEAVY,
          .grad = {"d * (1 - y * y)"}, .cuda = "tn_tanh($a)", .coarse = "tn_tanh", .torch = "tanh")
PRIMITIVE(ASINH, VALUE(asinh(a)), VECTOR(asinh), NONE, NONE, NONE,
          .name = "asinh", .arity = 1, .typing = TNI_TYPED_FLOAT, .effort = TNI_HEAVY,
          .grad = {"d * rsqrt(1 + a * a)"}, .cuda = "tn_asinh($a)", .torch = "asinh")
PRIMITIVE(ACOSH, VALUE(acosh(a)), VECTOR(acosh), NONE, NONE, NONE,
          .name = "acosh", .arity = 1, .typing = TNI_TYPED_FLOAT, .effort = TNI_HEAVY,
          .grad = {"d * rsqrt((a - 1) * (a + 1))"}, .cuda = "tn_acosh($a)", .torch = "acosh")
PRIMITIVE(ATANH, VALUE(atanh(a)), VECTOR(atanh), NONE, NONE, NONE,
          .name = "atanh", .arity = 1, .typing = TNI_TYPED_FLOAT, .effort = TNI_HEAVY,
          .grad = {"d / ((1 - a) * (1 + a))"}, .cuda = "tn_atanh($a)", .torch = "atanh")
PRIMITIVE(ERF, VALUE(erf(a)), VECTOR(erf), NONE, NONE, NONE,
          .name = "erf", .arity = 1, .typing = TNI_TYPED_FLOAT, .effort = TNI_HEAVY,
          .grad = {"d * (1.1283791670955126 * exp(-(a * a)))"}, .cuda = "tn_erf($a)", .torch = "erf")
PRIMITIVE(ERFC, VALUE(erfc(a)), SCALAR(F(erfc)(a)), NONE, NONE, NONE,
          .name = "erfc", .arity = 1, .typing = TNI_TYPED_FLOAT, .effort = TNI_HEAVY,
          .grad = {"-(d * (1.1283791670955126 * exp(-(a * a))))"}, .cuda = "tn_erfc($a)", .torch = "erfc")
PRIMITIVE(ERFINV, VALUE(tni_erfinv(a)), REFERENCE, NONE, NONE, NONE,
          .name = "erfinv", .arity = 1, .typing = TNI_TYPED_FLOAT, .effort = TNI_HEAVY,
          .grad = {"d * (0.886226925452758 * exp(y * y))"}, .cuda = "tn_erfinv($a)", .torch = "erfinv")
PRIMITIVE(LGAMMA, VALUE(lgamma(a)), SCALAR(F(lgamma)(a)), NONE, NONE, NONE,
          .name = "lgamma", .arity = 1, .typing = TNI_TYPED_FLOAT, .effort = TNI_HEAVY,
          .grad = {"d * digamma(a)"}, .cuda = "tn_lgamma($a)", .torch = "lgamma")
PRIMITIVE(DIGAMMA, VALUE(tni_digamma(a)), REFERENCE, NONE, NONE, NONE,
          .name = "digamma", .arity = 1, .typing = TNI_TYPED_FLOAT, .effort = TNI_HEAVY,
          .grad = {"d * polygamma(1, a)"}, .cuda = "tn_digamma($a)", .torch = "digamma")
PRIMITIVE(SIGMOID, VALUE(sigmoid(a)), VECTOR(sigmoid), NONE, NONE, COARSE(coarse_sigmoid),
          .name = "sigmoid", .arity = 1, .typing = TNI_TYPED_FLOAT, .effort = TNI_HEAVY,
          .grad = {"d * (y * (1 - y))"}, .cuda = "tn_sigmoid($a)", .coarse = "tn_sigmoid", .torch = "sigmoid")
PRIMITIVE(SOFTPLUS, VALUE(softplus(a)), VECTOR(softplus), NONE, NONE, NONE,
          .name = "softplus", .arity = 1, .typing = TNI_TYPED_FLOAT, .effort = TNI_HEAVY,
          .grad = {"d * sigmoid(a)"}, .cuda = "tn_softplus($a)", .torch = "_softplus")
PRIMITIVE(RELU, VALUE(a != a || a > 0 ? a : 0), VECTOR(relu), INTEGER(a > 0 ? a : 0), NONE, NONE,
          .name = "relu", .arity = 1, .typing = TNI_TYPED_SAME,
          .grad = {"where(y > 0, d, 0.0)"}, .cuda = "tn_relu($a)", .torch = "relu")
PRIMITIVE(BIT_NOT, VALUE((double)~tni_whole(a)), NONE, INTEGER(~a), NONE, NONE,
          .name = "~", .arity = 1, .binds = 11, .typing = TNI_TYPED_SAME, .cuda = "~($a)", .torch = "bitwise_not")
PRIMITIVE(NOT, VALUE(a == 0), NONE, NONE, TRUTH(!a), NONE,
          .name = "not ", .arity = 1, .binds = 3, .typing = TNI_TYPED_LOGIC, .cuda = "!($a)", .torch = "logical_not")

/* ---- two and three ----------------------------------------------------------------------------------------------- */

PRIMITIVE(ADD, VALUE(a + b), VECTOR_2(add), INTEGER_2(wrap_add(a, b)), NONE, NONE,
          .name = " + ", .arity = 2, .binds = 9, .typing = TNI_TYPED_SAME, .commutes = true, .wraps = true,
          .grad = {"d", "d"}, .cuda = "$a + $b", .torch = "add")
PRIMITIVE(SUB, VALUE(a - b), VECTOR_2(sub), INTEGER_2(wrap_sub(a, b)), NONE, NONE,
          .name = " - ", .arity = 2, .binds = 9, .typing = TNI_TYPED_SAME, .wraps = true,
          .grad = {"d", "-d"}, .cuda = "$a - $b", .torch = "sub")
PRIMITIVE(MUL, VALUE(a * b), VECTOR_2(mul), INTEGER_2(wrap_mul(a, b)), NONE, NONE,
          .name = " * ", .arity = 2, .binds = 10, .typing = TNI_TYPED_SAME, .commutes = true, .wraps = true,
          .grad = {"d * b", "d * a"}, .cuda = "$a * $b", .torch = "mul")
PRIMITIVE(DIV, VALUE(a / b), VECTOR_2(div), NONE, NONE, NONE,
          .name = " / ", .arity = 2, .binds = 10, .typing = TNI_TYPED_FLOAT,
          .grad = {"d / b", "-(d * y / b)"}, .cuda = "$a / $b", .torch = "div")
/* No torch: Inductor gets it wrong for large numbers and by infinity, and torch raises at integers by 0. */
PRIMITIVE(MOD, VALUE(modulo(a, b)), SCALAR_2(modulo(a, b)), INTEGER_2(modulo(a, b)), NONE, NONE,
          .name = " % ", .arity = 2, .binds = 10, .typing = TNI_TYPED_SAME, .effort = TNI_DEAR,
          .grad = {"d", "-(d * floor(a / b))"}, .cuda = "tn_mod($a, $b)")
PRIMITIVE(POW, VALUE(pow(a, b)), SCALAR_2(F(pow)(a, b)), INTEGER_2(power(a, b)), NONE, NONE,
          .name = " ** ", .arity = 2, .binds = 12, .typing = TNI_TYPED_SAME, .effort = TNI_DEAR,
          .grad = {"where(b == 0, 0.0, d * b * a ** (b - 1))", "where(a == 0, 0.0, d * y * log(a))"},
          .cuda = "tn_pow($a, $b)", .torch = "pow")
PRIMITIVE(ATAN2, VALUE(atan2(a, b)), VECTOR_2(atan2), NONE, NONE, NONE,
          .name = "atan2", .arity = 2, .typing = TNI_TYPED_FLOAT, .effort = TNI_HEAVY,
          .grad = {"d * b / (a * a + b * b)", "-(d * a / (a * a + b * b))"},
          .cuda = "tn_atan2($a, $b)", .torch = "atan2")
PRIMITIVE(LOGADDEXP, VALUE(logaddexp(a, b)), VECTOR_2(logaddexp), NONE, NONE, NONE,
          .name = "logaddexp", .arity = 2, .typing = TNI_TYPED_FLOAT, .effort = TNI_HEAVY, .commutes = true,
          .grad = {"d * where((a == b) and (abs(a) == inf), 0.5, sigmoid(a - b))",
                   "d * where((a == b) and (abs(a) == inf), 0.5, sigmoid(b - a))"},
          .cuda = "tn_logaddexp($a, $b)", .torch = "logaddexp")
/* No torch: its n is no tensor. */
PRIMITIVE(POLYGAMMA, VALUE(tni_polygamma(a, b)), REFERENCE, NONE, NONE, NONE,
          .name = "polygamma", .arity = 2, .typing = TNI_TYPED_FLOAT, .effort = TNI_HEAVY,
          .grad = {NULL, "d * polygamma(a + 1, b)"}, .cuda = "tn_polygamma($a, $b)")
PRIMITIVE(MIN, VALUE(least(a, b)), VECTOR_2(min), INTEGER_2(a < b ? a : b), NONE, NONE,
          .name = "minimum", .arity = 2, .typing = TNI_TYPED_SAME, .commutes = true,
          .grad = {"where(a <= b, where(a == b, d * 0.5, d), 0.0)", "where(b <= a, where(a == b, d * 0.5, d), 0.0)"},
          .cuda = "tn_min($a, $b)", .torch = "minimum")
PRIMITIVE(MAX, VALUE(most(a, b)), VECTOR_2(max), INTEGER_2(a > b ? a : b), NONE, NONE,
          .name = "maximum", .arity = 2, .typing = TNI_TYPED_SAME, .commutes = true,
          .grad = {"where(a >= b, where(a == b, d * 0.5, d), 0.0)", "where(b >= a, where(a == b, d * 0.5, d), 0.0)"},
          .cuda = "tn_max($a, $b)", .torch = "maximum")
PRIMITIVE(LT, VALUE(a < b), TEST(<), TEST(<), NONE, NONE,
          .name = " < ", .arity = 2, .binds = 4, .typing = TNI_TYPED_TEST, .cuda = "$a < $b", .torch = "lt")
PRIMITIVE(LE, VALUE(a <= b), TEST(<=), TEST(<=), NONE, NONE,
          .name = " <= ", .arity = 2, .binds = 4, .typing = TNI_TYPED_TEST, .cuda = "$a <= $b", .torch = "le")
PRIMITIVE(EQ, VALUE(a == b), TEST(==), TEST(==), NONE, NONE,
          .name = " == ", .arity = 2, .binds = 4, .typing = TNI_TYPED_TEST, .commutes = true,
          .cuda = "$a == $b", .torch = "eq")
PRIMITIVE(NE, VALUE(a != b), TEST(!=), TEST(!=), NONE, NONE,
          .name = " != ", .arity = 2, .binds = 4, .typing = TNI_TYPED_TEST, .commutes = true,
          .cuda = "$a != $b", .torch = "ne")
PRIMITIVE(AND, VALUE(a != 0 && b != 0), NONE, NONE, TRUTH_2(a & b), NONE,
          .name = " and ", .arity = 2, .binds = 2, .typing = TNI_TYPED_LOGIC, .commutes = true,
          .cuda = "$a & $b", .torch = "logical_and")
PRIMITIVE(OR, VALUE(a != 0 || b != 0), NONE, NONE, TRUTH_2(a | b), NONE,
          .name = " or ", .arity = 2, .binds = 1, .typing = TNI_TYPED_LOGIC, .commutes = true,
          .cuda = "$a | $b", .torch = "logical_or")
PRIMITIVE(BIT_AND, VALUE((double)(tni_whole(a) & tni_whole(b))), NONE, INTEGER_2(a & b), NONE, NONE,
          .name = " & ", .arity = 2, .binds = 7, .typing = TNI_TYPED_SAME, .commutes = true,
          .cuda = "$a & $b", .torch = "bitwise_and")
PRIMITIVE(BIT_OR, VALUE((double)(tni_whole(a) | tni_whole(b))), NONE, INTEGER_2(a | b), NONE, NONE,
          .name = " | ", .arity = 2, .binds = 5, .typing = TNI_TYPED_SAME, .commutes = true,
          .cuda = "$a | $b", .torch = "bitwise_or")
PRIMITIVE(BIT_XOR, VALUE((double)(tni_whole(a) ^ tni_whole(b))), NONE, INTEGER_2(a ^ b), NONE, NONE,
          .name = " ^ ", .arity = 2, .binds = 6, .typing = TNI_TYPED_SAME, .commutes = true,
          .cuda = "$a ^ $b", .torch = "bitwise_xor")
/* By a number outside of 0 … 63, all bits are gone. No torch: Inductor leaves that to the machine. */
PRIMITIVE(SHIFT_LEFT, VALUE((double)shift_left(tni_whole(a), tni_whole(b))), NONE, INTEGER_2(shift_left(a, b)), NONE,
          NONE, .name = " << ", .arity = 2, .binds = 8, .typing = TNI_TYPED_SAME, .cuda = "tn_shift_left($a, $b)")
PRIMITIVE(SHIFT_RIGHT, VALUE((double)shift_right(tni_whole(a), tni_whole(b))), NONE, INTEGER_2(shift_right(a, b)), NONE,
          NONE, .name = " >> ", .arity = 2, .binds = 8, .typing = TNI_TYPED_SAME, .cuda = "tn_shift_right($a, $b)")
PRIMITIVE(WHERE, VALUE(a != 0 ? b : c), CHOICE, CHOICE, CHOICE, NONE,
          .name = "where", .arity = 3, .typing = TNI_TYPED_CHOICE,
          .grad = {NULL, "where(a, d, 0.0)", "where(a, 0.0, d)"}, .cuda = "$a ? $b : $c", .torch = "where")
/* A call's graph has min and max instead: no loop of it is ever run. */
PRIMITIVE(CLAMP, VALUE(least(most(a, b), c)), REFERENCE, REFERENCE, NONE, NONE,
          .name = "clamp", .arity = 3, .typing = TNI_TYPED_SAME,
          .grad = {"where(a < b, 0.0, where(a > c, 0.0, d))", "where(a < b, where(b <= c, d, 0.0), 0.0)",
                   "where(a > c, d, where(b > c, d, 0.0))"})

/* ---- reductions and shapes --------------------------------------------------------------------------------------- */

PRIMITIVE(SUM, NONE, NONE, NONE, NONE, NONE,
          .name = "sum", .arity = 1, .kind = TNI_REDUCTION, .typing = TNI_TYPED_SAME, .grad = {"d"}, .torch = "sum")
PRIMITIVE(MEAN, NONE, NONE, NONE, NONE, NONE,
          .name = "mean", .arity = 1, .kind = TNI_REDUCTION, .typing = TNI_TYPED_FLOAT, .grad = {"d / count(a)"})
PRIMITIVE(RMAX, NONE, NONE, NONE, NONE, NONE,
          .name = "max", .arity = 1, .kind = TNI_REDUCTION, .typing = TNI_TYPED_SAME,
          .grad = {"where(a == y, d / sum(where(a == y, 1.0, 0.0)), 0.0)"}, .torch = "amax")
PRIMITIVE(RMIN, NONE, NONE, NONE, NONE, NONE,
          .name = "min", .arity = 1, .kind = TNI_REDUCTION, .typing = TNI_TYPED_SAME,
          .grad = {"where(a == y, d / sum(where(a == y, 1.0, 0.0)), 0.0)"}, .torch = "amin")
/* Where one element is 0 it alone has a derivative, the product of the others; where several are, none has. */
PRIMITIVE(PROD, NONE, NONE, NONE, NONE, NONE,
          .name = "prod", .arity = 1, .kind = TNI_REDUCTION, .typing = TNI_TYPED_SAME,
          .grad = {"d * where(a == 0, where(sum(where(a == 0, 1.0, 0.0)) == 1, prod(where(a == 0, 1.0, a)), 0.0), "
                   "y / a)"}, .torch = "_prod")
PRIMITIVE(VAR, NONE, NONE, NONE, NONE, NONE,
          .name = "var", .arity = 1, .kind = TNI_REDUCTION, .typing = TNI_TYPED_FLOAT,
          .grad = {"d * (2.0 / count(a)) * (a - mean(a))"})
PRIMITIVE(LSE, NONE, NONE, NONE, NONE, NONE,
          .name = "logsumexp", .arity = 1, .kind = TNI_REDUCTION, .typing = TNI_TYPED_FLOAT, .grad = {"d * exp(a - y)"})
/* argument 0 summed over the dimensions that argument 1 does not have */
PRIMITIVE(SUM_TO, NONE, NONE, NONE, NONE, NONE,
          .name = "sum_to", .arity = 2, .kind = TNI_RESHAPE, .typing = TNI_TYPED_FIRST, .grad = {"d"})
/* argument 0 in the shape of both */
PRIMITIVE(EXPAND, NONE, NONE, NONE, NONE, NONE,
          .name = "expand", .arity = 2, .kind = TNI_RESHAPE, .typing = TNI_TYPED_FIRST, .grad = {"d"})

/* ---- forms: several at once, found by plan/lower.c --------------------------------------------------------------- */

PRIMITIVE(TANH_SOFTPLUS, NONE, VECTOR(tanh_softplus), NONE, NONE, COARSE(coarse_tanh_softplus),
          .name = "tanh(softplus(a))", .arity = 1, .kind = TNI_FORM, .effort = TNI_HEAVY,
          .cuda = "tn_tanh_softplus($a)", .coarse = "tn_tanh_softplus")
PRIMITIVE(HALF_ERF, NONE, VECTOR(half_erf), NONE, NONE, COARSE(coarse_half_erf),
          .name = "0.5 + 0.5 * erf(a)", .arity = 1, .kind = TNI_FORM, .effort = TNI_HEAVY,
          .cuda = "tn_half_erf($a)", .coarse = "tn_half_erf")
PRIMITIVE(ONE_TANH, NONE, NONE, NONE, NONE, NONE,
          .name = "1 + tanh(a)", .arity = 1, .kind = TNI_FORM, .effort = TNI_HEAVY,
          .cuda = "tn_one_tanh($a)", .coarse = "tn_one_tanh")
PRIMITIVE(TIMES_SIGMOID, NONE, NONE, NONE, NONE, NONE,
          .name = "a * sigmoid(b)", .arity = 2, .kind = TNI_FORM, .effort = TNI_HEAVY,
          .cuda = "tn_times_sigmoid($a, $b)", .coarse = "tn_times_sigmoid")

/* clang-format on */

#undef PRIMITIVE
#endif
