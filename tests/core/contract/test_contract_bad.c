/* Contracts that are wrong: each gets a message that says what, and points at where. */
#include <stdlib.h>

#include "tests/test.h"

#include "contract_call.h"
#include "contract_catalogue.h"

/* The message has a column and, two lines below, a caret under it; for texts short enough to be quoted whole it stands
 * exactly there. */
static bool points_at(const char *message, const char *text) {
    const char *column = strstr(message, " at column "), *line = column ? strchr(column, '\n') : NULL;
    const char *caret = line ? strchr(line + 1, '\n') : NULL;
    if (!caret || caret[strlen(caret) - 1] != '^') return false;
    long at = strtol(column + 11, NULL, 10);
    if (at < 1 || at > (long)strlen(text) + 1) return false;
    return strlen(text) > 100 || (long)strlen(caret + 1) == at + 2; /* the margin is two wide */
}

static void check_bad(const char *text, const char *fragment) {
    tni_contract *contract;
    tn_status status = tni_contract_parse(text, &contract);
    CHECK_ROW(status == TN_BAD_CONTRACT && !contract, "%s", text);
    if (status == TN_OK) {
        tni_contract_free(contract);
        return;
    }
    CHECK_ROW(strstr(tn_last_error(), fragment), "%s\n    gave %s", text, tn_last_error());
    CHECK_ROW(points_at(tn_last_error(), text), "%s\n    gave %s", text, tn_last_error());
}

static const char *const rows[][2] = {
    /* the frame */
    {"", "expected the operator's name"},
    {"   ", "expected the operator's name at column 4"},
    {"(x: T[n]) -> y: T[n]", "expected the operator's name at column 1"},
    {"9f(x: T[n]) -> y: T[n]", "malformed number"},
    {"where(x: T[n]) -> y: T[n]", "'where' is a word of the language"},
    {"f", "expected '(' after the operator's name at column 2"},
    {"f x", "expected '(' after the operator's name"},
    {"f(", "expected the name of a parameter"},
    {"f()", "expected '->' and the outputs"},
    {"f(x: T[n])", "expected '->' and the outputs: nothing is updated in place"},
    {"f(x: T[n]) ->", "expected the name of an output"},
    {"f(x: T[n]) -> ,", "expected the name of an output"},
    {"f(x: T[n]) -> y: T[n],", "expected the name of an output"},
    {"f(x: T[n]) - > y: T[n]", "expected '->' and the outputs"},
    {"f(x: T[n]) = y: T[n]", "expected '->' and the outputs"},
    {"f(x: T[n]) -> y: T[n] z", "expected the end"},
    {"f(x: T[n]) -> y: T[n])", "expected the end"},
    {"f(x: T[n]) -> y: T[n]; g", "expected the end"},
    {"f(x: T[n]) -> y: T[n] where", "expected a dimension, an attribute or a number"},
    {"f(x: T[n]) -> y: T[n] where n > 1,", "expected a dimension, an attribute or a number"},
    {"f(x: T[n]) -> y: T[n] where n > 1 n", "expected the end"},
    {"f(x: T[n] -> y: T[n]", "expected ',' or ')' after a parameter"},
    {"f(x: T[n],) -> y: T[n]", "expected the name of a parameter"},
    {"f(, x: T[n]) -> y: T[n]", "expected the name of a parameter"},
    {"f(x: T[n] y: T[n]) -> z: T[n]", "expected ',' or ')' after a parameter"},
    {"f(x: T[n]; y: T[n]) -> z: T[n]", "expected ',' or ')' after a parameter"},
    {"f((x: T[n])) -> y: T[n]", "expected the name of a parameter"},
    {"f(x T[n]) -> y: T[n]", "expected ':' after 'x' at column 5"},
    {"softmax(x: T[*s], mask bool[~*s]?)", "contract of 'softmax': expected ':' after 'mask' at column 24"},
    {"f(x: T[n]) -> y T[n]", "expected ':' after 'y'"},
    {"f(x: ) -> y: T[n]", "expected a type"},
    {"f(x) -> y: T[n]", "expected ':' after 'x'"},
    {"f(if: T[n]) -> y: T[n]", "'if' is a word of the language"},
    {"f(x: T[n]) -> else: T[n]", "'else' is a word of the language"},
    /* characters */
    {"f(x: T[n]) -> y: T[n] $", "unexpected character '$'"},
    {"f(x: T[n]) -> y: T[n] \x01", "unexpected byte 0x01"},
    {"f(x: T[n]) -> y: T[n] \xe2\x80\xa6", "the character '…', not ASCII, is not understood at column 23"},
    {"\xff\xfe", "unexpected byte 0xff"},
    {"f(x: T[n]) -> y: T[n] \"", "unexpected character '\"'"},
    {"f(x: T[n]) -> y: T[n] {", "unexpected character '{'"},
    {"f(x: T[n], a: 'abc) -> y: T[n]", "the string has no closing quote"},
    {"f(x: T[n], a: 'a\tc') -> y: T[n]", "a string takes printable ASCII only"},
    {"f(x: T[n], a: '\xc3\xa9') -> y: T[n]", "a string takes printable ASCII only"},
    {"f(x: T[99999999999999999999]) -> y: T[1]", "does not fit in 64 bits"},
    {"f(x: T[9223372036854775808]) -> y: T[1]", "does not fit in 64 bits"},
    {"f(x: T[1x]) -> y: T[1]", "malformed number"},
    {"f(x: T[1.]) -> y: T[1]", "malformed number"},
    {"f(x: T[n], a: float = 1.2.3) -> y: T[1]", "malformed number"},
    {"f(x: T[n], a: float = 1e) -> y: T[1]", "malformed number"},
    {"f(x: T[n], a: float = 1e999) -> y: T[1]", "the number is too large"},
    {"f(x: T[n], a: float = .5) -> y: T[1]", "unexpected character '.'"},
    {"f(x: T[0x10]) -> y: T[1]", "malformed number"},
    {"f(x: float32[n]) -> y: float32[n]", "there is no type 'float32'; it is called f32"},
    {"f(x: T[n], i: uint8[n]) -> y: T[n]", "there is no type 'uint8'; it is called u8"},
    {"f(x: float31[n]) -> y: f32[n]", "there is no type 'float31', nor a dtype attribute"},
    {"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz(x: T[n]) -> y: T[n]",
     "the name is longer than 63 characters"},
    {"f(x: T[abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz]) -> y: T[n]",
     "the name is longer than 63 characters"},
    /* type variables */
    {"f<>(x: T[n]) -> y: T[n]", "expected a type variable"},
    {"f<T>(x: T[n]) -> y: T[n]", "expected ':' and the types"},
    {"f<T:>(x: T[n]) -> y: T[n]", "expected any, float, int or names of types"},
    {"f<T: anything>(x: T[n]) -> y: T[n]", "expected any, float, int or names of types"},
    {"f<T: f32 f33>(x: T[n]) -> y: T[n]", "expected ',' or '>'"},
    {"f<T: any f32>(x: T[n]) -> y: T[n]", "expected ',' or '>'"},
    {"f<T: f32|f64>(x: T[n]) -> y: T[n]", "expected ',' or '>'"},
    {"f<T: f32 f32>(x: T[n]) -> y: T[n]", "f32 is listed twice"},
    {"f<T: any, T: int>(x: T[n]) -> y: T[n]", "type variable 'T' is declared twice"},
    {"f<t: any>(x: t[n]) -> y: t[n]", "a type variable begins with a capital letter"},
    {"f<f32: any>(x: T[n]) -> y: T[n]", "a type variable begins with a capital letter"},
    {"f<T: any, >(x: T[n]) -> y: T[n]", "expected a type variable"},
    {"f<T: any(x: T[n]) -> y: T[n]", "expected ',' or '>'"},
    {"f<I: i32>(x: T[n]) -> y: T[n]", "'I' is not the type of any input"},
    {"f(x: f32[n]) -> y: T[n]", "'T' is not the type of any input"},
    {"f(x: f32[n]) -> y: acc(T)[n]", "'T' is not the type of any input"},
    {"f(x: T[n]) -> y: T[n], z: W[n]", "'W' is not the type of any input"},
    {"f(a: A[n], b: B[n], c: C[n], d: D[n], e: E[n], f: F[n], g: G[n], h: H[n], i: I[n]) -> y: A[n]",
     "more than 8 type variables"},
    {"f<A: any, B: any, C: any, D: any, E: any, F: any, G: any, H: any, I: any>(x: A[n]) -> y: A[n]",
     "more than 8 type variables"},
    /* types of tensors */
    {"f(x: t[n]) -> y: f32[n]", "there is no type 't'"},
    {"f(x: f32|T[n]) -> y: f32[n]", "expected the name of a type, such as i32, after '|'"},
    {"f(x: T|f32[n]) -> y: f32[n]", "expected '[' and the shape"},
    {"f(x: f32|[n]) -> y: f32[n]", "expected the name of a type"},
    {"f(x: f32|f32[n]) -> y: f32[n]", "f32 is listed twice"},
    {"f(x: T[n]) -> y: i32|i64[n]", "output 'y' has several types"},
    {"f(x: acc(f32)[n]) -> y: f32[n]", "expected a type variable, such as T"},
    {"f(x: acc()[n]) -> y: f32[n]", "expected a type variable, such as T"},
    {"f(x: acc(T[n]) -> y: f32[n]", "expected ')' after the type"},
    {"f(x: acc(acc(T))[n]) -> y: f32[n]", "expected ')' after the type"},
    {"f(x: T[n]) -> y: sqrt(T)[n]", "expected '[' and the shape"},
    {"f(x: T) -> y: T[n]", "expected '[' and the shape"},
    {"f(x: f32) -> y: f32[n]", "expected '[' and the shape"},
    {"f(x: T[n], out: int) -> y: out[n]", "there is no type 'out', nor a dtype attribute"},
    {"f(x: T[n], out: dtype?) -> y: out[n]", "'out' is optional"},
    {"f(x: x[n]) -> y: T[n]", "there is no type 'x'"},
    {"f(x: int[n]) -> y: T[n]", "expected ',' or ')' after a parameter"},
    /* shapes */
    {"f(x: T[n) -> y: T[n]", "expected ',' or ']' in a shape"},
    {"f(x: T[n,]) -> y: T[n]", "expected a dimension, an attribute or a number"},
    {"f(x: T[,n]) -> y: T[n]", "expected a dimension, an attribute or a number"},
    {"f(x: T[n n]) -> y: T[n]", "expected ',' or ']' in a shape"},
    {"f(x: T[n]]) -> y: T[n]", "expected ',' or ')' after a parameter"},
    {"f(x: T[[n]]) -> y: T[n]", "expected a dimension"},
    {"f(x: T[*]) -> y: T[n]", "expected a name after '*'"},
    {"f(x: T[**s]) -> y: T[*s]", "expected a name after '*'"},
    {"f(x: T[*1]) -> y: T[n]", "expected a name after '*'"},
    {"f(x: T[*if]) -> y: T[n]", "'if' is a word of the language"},
    {"f(x: T[*s, *r]) -> y: T[*s]", "an input has at most one '*' or shape function"},
    {"f(x: T[*s, n, *s]) -> y: T[*s]", "an input has at most one '*' or shape function"},
    {"f(x: T[*s], y: T[*s, broadcast(*s, *s)]) -> z: T[*s]", "an input has at most one '*' or shape function"},
    {"f(x: T[~]) -> y: T[n]", "expected a dimension"},
    {"f(x: T[~~n], z: T[n]) -> y: T[n]", "expected a dimension"},
    {"f(x: T[n]) -> y: T[~n]", "an output has the shape it has"},
    {"f(x: T[*s]) -> y: T[~*s]", "an output has the shape it has"},
    {"f(x: T[*s], y: T[~broadcast(*s, *s)]) -> z: T[*s]", "'~' does not go with a shape function"},
    {"f(x: T[a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q]) -> y: T[a]", "a tensor has at most 16 dimensions"},
    {"f(x: T[n]) -> y: T[m]", "'m' is no attribute, and no input tells it as a dimension"},
    {"f(x: T[n]) -> y: T[x]", "'x' is a tensor, and no input has a dimension 'x'"},
    {"f(x: T[n]) -> y: T[*s]", "no input has '*s'"},
    {"f(x: T[n]) -> y: T[n] where rank(*s) > 1", "no input has '*s'"},
    {"f(x: T[n / 2]) -> y: T[n]", "'n' is no attribute, and no input tells it as a dimension"},
    {"f(x: T[n % 2]) -> y: T[n]", "'n' is no attribute, and no input tells it as a dimension"},
    {"f(x: T[n + n]) -> y: T[n]", "'n' is no attribute, and no input tells it as a dimension"},
    {"f(x: T[a + b], y: T[a - b]) -> y2: T[a]", "'a' is no attribute, and no input tells it as a dimension"},
    {"f(x: T[2 / n]) -> y: T[n]", "'n' is no attribute, and no input tells it as a dimension"},
    {"f(x: T[reduce(*s, a)], a: axes) -> y: T[*s]", "no input has '*s'"},
    {"f(x: T[n if]) -> y: T[n]", "expected a dimension, an attribute or a number"},
    {"f(x: T[n if true]) -> y: T[n]", "expected 'else' after the condition"},
    {"f(x: T[n if true else n) -> y: T[n]", "expected ',' or ']' in a shape"},
    {"f(x: T[n if n > 1 else]) -> y: T[n]", "'n' is not an attribute; a shape is chosen by attributes only"},
    {"f(x: T[*s if rank(*s) > 1 else]) -> y: T[*s]", "a shape is chosen by attributes only, not by a rank"},
    {"f(x: T[n if a else], a: int) -> y: T[n]", "expected a condition after 'if', not an integer"},
    {"f(x: T[n if 'a' else]) -> y: T[n]", "expected a condition after 'if', not a string"},
    {"f(x: T[n if a == 'b' else], a: 'x'|'y') -> y: T[n]", "'b' is not one of the choices of 'a'"},
    {"f(x: T[n if 'b' != a else], a: 'x'|'y') -> y: T[n]", "'b' is not one of the choices of 'a'"},
    {"f(x: T[n if ax == 1 else], ax: axis) -> y: T[n]", "'ax' counts in the inputs"},
    {"f(x: T[n + ax], ax: axis) -> y: T[n]", "'ax' counts in the inputs"},
    {"f(x: T[n else]) -> y: T[n]", "expected ',' or ']' in a shape"},
    {"f(x: T[true]) -> y: T[1]", "expected an integer as a dimension, not a condition"},
    {"f(x: T['a']) -> y: T[1]", "expected an integer as a dimension, not a string"},
    {"f(x: T[1.5]) -> y: T[1]", "expressions have no fractions"},
    {"f(x: T[n]) -> y: T[n == 1]", "expected an integer as a dimension, not a condition"},
    /* shape functions */
    {"f(x: T[*s]) -> y: T[transpose(*s)]", "there is no function 'transpose' here"},
    {"f(x: T[*s]) -> y: T[reduce(*s)]", "expected ',' and a second argument"},
    {"f(x: T[*s], a: axes) -> y: T[reduce(s, a)]", "expected '*' and a name: a shape function works on *s"},
    {"f(x: T[*s]) -> y: T[reduce(*s, a)]", "'a' is not an axis or axes attribute"},
    {"f(x: T[*s], a: int) -> y: T[reduce(*s, a)]", "'a' is not an axis or axes attribute"},
    {"f(x: T[*s], a: ints) -> y: T[reduce(*s, a)]", "'a' is not an axis or axes attribute"},
    {"f(x: T[*s], a: axes?) -> y: T[reduce(*s, a)]", "'a' is optional, so no shape or condition can depend on it"},
    {"f(x: T[*s], a: axes, k: int) -> y: T[reduce(*s, a, k)]", "'k' is not a bool attribute"},
    {"f(x: T[*s], a: axes, k: bool?) -> y: T[reduce(*s, a, k)]", "'k' is optional"},
    {"f(x: T[*s], a: axes) -> y: T[reduce(*s, a, true)]", "expected the name of a bool attribute"},
    {"f(x: T[*s], a: axes, k: bool) -> y: T[reduce(*s, a, k, k)]", "expected ')' after the arguments"},
    {"f(x: T[*s], a: axes) -> y: T[reduce(*s, a]", "expected ')' after the arguments"},
    {"f(x: T[*s], a: axes) -> y: T[permute(*s, a)]", "'a' is not an ints attribute"},
    {"f(x: T[*s], a: ints) -> y: T[permute(*s, a, a)]", "expected ')' after the arguments"},
    {"f(x: T[*s], a: axes) -> y: T[resize(*s, a, 3)]", "'a' is not an axis attribute"},
    {"f(x: T[*s], a: axis) -> y: T[resize(*s, a)]", "expected ',' and the size along the axis"},
    {"f(x: T[*s], a: axis) -> y: T[resize(*s, a, n)]", "'n' is no attribute, and no input tells it as a dimension"},
    {"f(x: T[resize(*s, a, 2 * n)], a: axis, z: T[*s]) -> y: T[n]", "'n' is no attribute, and no input tells it"},
    {"f(x: T[*s], a: axis) -> y: T[resize(*s, a, 1.5)]", "expected"},
    {"f(x: T[*s]) -> y: T[broadcast(*s)]", "expected ',' and a second argument"},
    {"f(x: T[*s]) -> y: T[broadcast(*s, s)]", "expected '*' and a name"},
    {"f(x: T[*s]) -> y: T[broadcast(rows(*s), *s)]", "expected '*' and a name"},
    {"f(x: T[*s], y: T[*p]) -> z: T[broadcast(*s, rows(*p), *p)]", "expected rows(*name): columns come last"},
    {"f(x: T[*s]) -> y: T[broadcast(*s, rows(*s, *s))]", "expected ')' after the operand of rows"},
    {"f(x: T[*s]) -> y: T[rows(s)]", "expected '*' and a name"},
    {"f(x: T[*s]) -> y: T[rows(*s]", "expected ',' or ')'"},
    {"f(x: T[*s]) -> y: T[rows(*s, rows(*s))]", "expected '*' and a name"},
    {"f(d: T[rows(*s)]) -> y: T[*s]", "no input has '*s'"},
    {"f(d: T[rows(*s)]) -> y: T[rank(*s)]", "no input has '*s'"},
    {"f(d: T[rows(*s, *p)], x: T[*s]) -> y: T[*s]", "no input has '*p'"},
    {"f(x: T[*s], a: int) -> y: T[broadcast(*s, *a)]", "'*a' needs an ints attribute, which 'a' is not"},
    {"f(x: T[*s], a: axes) -> y: T[*a]", "'*a' needs an ints attribute, which 'a' is not"},
    {"f(x: T[*s], a: ints?) -> y: T[*a]", "'a' is optional"},
    {"f(x: T[*s], a: axis) -> y: T[concat(*s, a)]", "concat works on the elements of a list input, which '*s' is not"},
    {"f(x: [T[*s]], a: axes) -> y: T[concat(*s, a)]", "'a' is not an axis attribute"},
    {"f(x: [T[*s]], a: axis, b: ints) -> y: T[concat(*b, a)]", "concat works on the elements of a list input"},
    {"f(x: T[*s]) -> y: T[rank(s)]", "expected '*' and a name in rank"},
    {"f(x: T[*s]) -> y: T[rank(*s, *s)]", "expected ')' after rank's argument"},
    {"f(x: T[*s]) -> y: T[rank()]", "expected '*' and a name in rank"},
    {"f(x: T[*s], a: ints) -> y: T[rank(*a)]", "'a' is an attribute; rank takes *s"},
    {"f(x: T[*s]) -> y: T[*s] where reduce(*s) == 1", "there is no function 'reduce' here"},
    /* expressions */
    {"f(x: T[n]) -> y: T[n +]", "expected a dimension, an attribute or a number"},
    {"f(x: T[n]) -> y: T[+ n]", "expected a dimension, an attribute or a number"},
    {"f(x: T[n]) -> y: T[(n]", "expected ')'"},
    {"f(x: T[n]) -> y: T[n)]", "expected ',' or ']' in a shape"},
    {"f(x: T[n]) -> y: T[()]", "expected a dimension, an attribute or a number"},
    {"f(x: T[n]) -> y: T[n % ]", "expected a dimension, an attribute or a number"},
    {"f(x: T[n]) -> y: T[n // 2]", "expected a dimension, an attribute or a number"},
    {"f(x: T[n]) -> y: T[n ** 2]", "expected a dimension, an attribute or a number"},
    {"f(x: T[n]) -> y: T[n ? 1]", "expected ',' or ']' in a shape"},
    {"f(x: T[n]) -> y: T[n[0]]", "'n' is not an ints attribute, so it has no elements"},
    {"f(x: T[n], a: int) -> y: T[a[0]]", "'a' is not an ints attribute, so it has no elements"},
    {"f(x: T[n], a: ints) -> y: T[a]", "'a' is a list; say which element: a[0]"},
    {"f(x: T[n], a: ints) -> y: T[a[n]]", "expected an integer after 'a['"},
    {"f(x: T[n], a: ints) -> y: T[a[-1]]", "expected an integer after 'a['"},
    {"f(x: T[n], a: ints) -> y: T[a[64]]", "an ints attribute has at most 64 elements"},
    {"f(x: T[n], a: ints[2]) -> y: T[a[2]]", "'a' has 2 elements, so there is no a[2]"},
    {"f(x: T[n], a: ints) -> y: T[a[0]", "expected ',' or ']' in a shape"},
    {"f(x: T[n], a: ints?) -> y: T[a[0]]", "'a' is optional"},
    {"f(x: T[n], a: int?) -> y: T[a]", "'a' is optional"},
    {"f(x: T[n], a: float) -> y: T[a]", "expected an integer as a dimension, not a float"},
    {"f(x: T[n], a: dtype) -> y: T[a]", "'a' is not a number, bool or string"},
    {"f(x: T[n], a: axes) -> y: T[a]", "'a' is not a number, bool or string"},
    {"f(x: T[n], a: bool) -> y: T[a]", "expected an integer as a dimension, not a condition"},
    {"f(x: T[n], a: str) -> y: T[a + 1]", "expected an integer before the operator, not a string"},
    {"f(x: T[n], a: bool) -> y: T[1 + a]", "expected an integer after the operator, not a condition"},
    {"f(x: T[n], a: bool) -> y: T[-a]", "expected an integer after '-', not a condition"},
    {"f(x: T[n]) -> y: T[n] where n", "expected a condition after 'where', not an integer"},
    {"f(x: T[n]) -> y: T[n] where n + 1", "expected a condition after 'where', not an integer"},
    {"f(x: T[n]) -> y: T[n] where not n", "expected a condition after 'not', not an integer"},
    {"f(x: T[n]) -> y: T[n] where n and n > 1", "expected a condition after 'where', not an integer"},
    {"f(x: T[n]) -> y: T[n] where n or n > 1", "expected a condition before 'and' or 'or', not an integer"},
    {"f(x: T[n]) -> y: T[n] where n > 1 or n", "expected a condition after 'and' or 'or', not an integer"},
    {"f(x: T[n]) -> y: T[n] where 1 < n < 3", "comparisons cannot be chained"},
    {"f(x: T[n]) -> y: T[n] where n == 1 == true", "comparisons cannot be chained"},
    {"f(x: T[n]) -> y: T[n] where n == 'a'", "an integer cannot equal a string"},
    {"f(x: T[n]) -> y: T[n] where n != true", "an integer cannot equal a condition"},
    {"f(x: T[n]) -> y: T[n] where 'a' < 'b'", "expected a number before the operator, not a string"},
    {"f(x: T[n]) -> y: T[n] where n = 1", "expected the end"},
    {"f(x: T[n]) -> y: T[n] where n => 1", "expected the end"},
    {"f(x: T[n]) -> y: T[n] where n > 1 and", "expected a dimension, an attribute or a number"},
    {"f(x: T[n]) -> y: T[n] where and n > 1", "'and' is a word of the language"},
    {"f(x: T[n]) -> y: T[n] where m > 1", "'m' is no attribute, and no input tells it as a dimension"},
    {"f(x: T[n], a: float) -> y: T[n] where a + 1 > 1", "expected an integer before the operator, not a float"},
    {"f(x: T[n], a: float) -> y: T[n] where a", "expected a condition after 'where', not a float"},
    {"f(x: T[n], a: float) -> y: T[n] where a == 'b'", "a float cannot equal a string"},
    {"f(x: T[n], a: float?) -> y: T[n] where a > 1", "'a' is optional, so no shape or condition can depend on it"},
    {"f(x: T[n]) -> y: T[n] where n > 0.5", "expressions have no fractions"},
    /* attributes */
    {"f(x: T[n], a: integer = 1) -> y: T[n]", "expected '[' and the shape"},
    {"f(x: T[n], a: int = ) -> y: T[n]", "expected an integer as the default of 'a'"},
    {"f(x: T[n], a: int = 1.5) -> y: T[n]", "expected an integer as the default of 'a'"},
    {"f(x: T[n], a: int = true) -> y: T[n]", "expected an integer as the default of 'a'"},
    {"f(x: T[n], a: int = 'x') -> y: T[n]", "expected an integer as the default of 'a'"},
    {"f(x: T[n], a: int = - 1.0) -> y: T[n]", "expected an integer as the default of 'a'"},
    {"f(x: T[n], a: int = inf) -> y: T[n]", "expected an integer as the default of 'a'"},
    {"f(x: T[n], a: int = 99999999999999999999) -> y: T[n]", "does not fit in 64 bits"},
    {"f(x: T[n], a: int = 1 + 1) -> y: T[n]", "expected ',' or ')' after a parameter"},
    {"f(x: T[n], a: axis = [1]) -> y: T[n]", "expected an integer as the default of 'a'"},
    {"f(x: T[n], a: float = true) -> y: T[n]", "expected a number as the default of 'a'"},
    {"f(x: T[n], a: float = '1') -> y: T[n]", "expected a number as the default of 'a'"},
    {"f(x: T[n], a: float = nan) -> y: T[n]", "expected a number as the default of 'a'"},
    {"f(x: T[n], a: bool = 1) -> y: T[n]", "expected true or false as the default of 'a'"},
    {"f(x: T[n], a: bool = True) -> y: T[n]", "expected true or false as the default of 'a'"},
    {"f(x: T[n], a: str = abc) -> y: T[n]", "expected a string in quotes as the default of 'a'"},
    {"f(x: T[n], a: str = 1) -> y: T[n]", "expected a string in quotes as the default of 'a'"},
    {"f(x: T[n], a: activation = relu) -> y: T[n]", "expected a string in quotes as the default of 'a'"},
    {"f(x: T[n], a: dtype = float) -> y: T[n]", "expected the name of a type as the default of 'a'"},
    {"f(x: T[n], a: dtype = 'f32') -> y: T[n]", "expected the name of a type as the default of 'a'"},
    {"f(x: T[n], a: dtype = T) -> y: T[n]", "expected the name of a type as the default of 'a'"},
    {"f(x: T[n], a: axes = 1) -> y: T[n]", "expected a list such as [0, 1] as the default of 'a'"},
    {"f(x: T[n], a: ints = (1, 2)) -> y: T[n]", "expected a list such as [0, 1] as the default of 'a'"},
    {"f(x: T[n], a: ints = [1, ]) -> y: T[n]", "expected an integer"},
    {"f(x: T[n], a: ints = [1 2]) -> y: T[n]", "expected ',' or ']' in a list"},
    {"f(x: T[n], a: ints = [1.5]) -> y: T[n]", "expected an integer"},
    {"f(x: T[n], a: ints = [n]) -> y: T[n]", "expected an integer"},
    {"f(x: T[n], a: ints = [1) -> y: T[n]", "expected ',' or ']' in a list"},
    {"f(x: T[n], a: ints[2] = [1]) -> y: T[n]", "the default of 'a' has 1 elements, not 2"},
    {"f(x: T[n], a: ints[2] = [1, 2, 3]) -> y: T[n]", "the default of 'a' has 3 elements, not 2"},
    {"f(x: T[n], a: ints[0]) -> y: T[n]", "expected a length from 1 to 64"},
    {"f(x: T[n], a: ints[65]) -> y: T[n]", "expected a length from 1 to 64"},
    {"f(x: T[n], a: ints[n]) -> y: T[n]", "expected a length from 1 to 64"},
    {"f(x: T[n], a: ints[]) -> y: T[n]", "expected a length from 1 to 64"},
    {"f(x: T[n], a: ints[2) -> y: T[n]", "expected ']' after the length"},
    {"f(x: T[n], a: axes[2]) -> y: T[n]", "expected ',' or ')' after a parameter"},
    {"f(x: T[n], a: 'x'|) -> y: T[n]", "expected a string in quotes after '|'"},
    {"f(x: T[n], a: 'x'|y) -> y: T[n]", "expected a string in quotes after '|'"},
    {"f(x: T[n], a: 'x'|'x') -> y: T[n]", "the choice 'x' is listed twice"},
    {"f(x: T[n], a: 'x'|'y' = 'z') -> y: T[n]", "the default 'z' is not one of the choices of 'a'"},
    {"f(x: T[n], a: 'x'|'y' = x) -> y: T[n]", "expected a string in quotes as the default of 'a'"},
    {"f(x: T[n], a: 'x' 'y') -> y: T[n]", "expected ',' or ')' after a parameter"},
    {"f(x: T[n], a: int|float) -> y: T[n]", "expected ',' or ')' after a parameter"},
    {"f(x: T[n], a: float? = 1.0) -> y: T[n]", "'a' is optional with '?', so it has no default"},
    {"f(x: T[n], a: float!) -> y: T[n]", "only tensors are updated in place"},
    {"f(x: T[n], a: float?"
     "?) -> y: T[n]",
     "expected ',' or ')' after a parameter"},
    {"f(x: T[n], a: float?grad) -> y: T[n]", "expected ',' or ')' after a parameter"},
    {"f(a: axis) -> y: f32[2]", "'a' counts the dimensions of an input, and there is none"},
    {"f(a: axes = []) -> y: f32[2]", "'a' counts the dimensions of an input, and there is none"},
    {"f(x: T[n], a: ) -> y: T[n]", "expected a type"},
    {"f(x: T[n], a: = 1) -> y: T[n]", "expected a type"},
    /* marks of tensors */
    {"f(x: T[n]! !) -> y: T[n]", "'!' stands twice behind 'x'"},
    {"f(x: T[n]?"
     "?) -> y: T[n]",
     "'?' stands twice behind 'x'"},
    {"f(x: T[n]?!?) -> y: T[n]", "'?' stands twice behind 'x'"},
    {"f(x: T[n]?grad) -> y: T[n]", "'?grad' is for outputs; an optional input has '?'"},
    {"f(x: T[n] = 1) -> y: T[n]", "a tensor has no default; '?' makes it optional"},
    {"f(x: T[n]? = 1) -> y: T[n]", "a tensor has no default; '?' makes it optional"},
    {"f(x: T[n]) -> y: T[n]!", "only inputs are updated in place"},
    {"f(x: T[n]) -> y: T[n]?!", "expected the end"},
    {"f(x: T[n]) -> y: T[n]!?", "only inputs are updated in place"},
    {"f(x: T[n]) -> y: T[n] = 1", "expected the end"},
    {"f(x: T[n]) -> y: T[n]grad", "expected the end"},
    {"f(x: T[n]) -> y: T[n]?gradient", "expected the end"},
    {"f(x: T[n]) -> y: int", "expected '[' and the shape"},
    {"f(x: T[n]) -> y: 'a'", "expected a type"},
    /* lists */
    {"f(xs: [T[*s]) -> y: T[]", "expected ']' after the element of a list"},
    {"f(xs: [T[*s], T[*s]]) -> y: T[]", "expected ']' after the element of a list"},
    {"f(xs: []) -> y: f32[]", "expected a type"},
    {"f(xs: [[T[*s]]]) -> y: T[]", "expected a type"},
    {"f(xs: [int]) -> y: f32[]", "expected '[' and the shape"},
    {"f(xs: [T[*s]?]) -> y: T[]", "expected ']' after the element of a list"},
    {"f(x: T[n]) -> ys: [T[n]]", "output 'ys' is a list, but no input tells its length"},
    /* names */
    {"f(x: T[n], x: T[n]) -> y: T[n]", "there are two parameters 'x' at column 12"},
    {"f(x: T[n], x: int) -> y: T[n]", "there are two parameters 'x' at column 12"},
    {"f(x: int, x: T[n]) -> y: T[n]", "there are two parameters 'x' at column 11"},
    {"f(x: T[n], a: int, a: float) -> y: T[n]", "there are two parameters 'a' at column 20"},
    {"f(x: T[n]) -> y: T[n], y: T[n]", "there are two outputs 'y'"},
    {"f(x: T[n]) -> x: T[n]", "output 'x' has the name of a parameter"},
    {"f(x: T[n], a: int) -> a: T[n]", "output 'a' has the name of a parameter"},
    {"f(x: T[n], want_y: bool) -> y: T[n]?", "the '?' implies an attribute 'want_y', but there is one already"},
    {"f(x: T[n], want_y: T[n]) -> y: T[n]?grad", "there are two parameters 'want_y'"},
    {"f(x: T[n]) -> y: T[n]?, want_y: T[n]", "output 'want_y' has the name of a parameter"},
};

/* ---- limits ------------------------------------------------------------------------------------------------------ */

/* `head`, then `count` times `middle` (with its number where it has a %d), then `tail`. */
static char *repeated(const char *head, const char *middle, int count, const char *tail) {
    size_t size = strlen(head) + (strlen(middle) + 12) * (size_t)count + strlen(tail) + 1, n = strlen(head);
    char *text = malloc(size);
    memcpy(text, head, n + 1);
    for (int i = 0; i < count; i++) {
        for (const char *m = middle; *m; m++) {
            if (*m == '#') {
                n += (size_t)snprintf(text + n, size - n, "%d", i);
            } else {
                text[n++] = *m;
            }
        }
    }
    memcpy(text + n, tail, strlen(tail) + 1);
    return text;
}

static void test_limits(void) {
    static const struct {
        const char *head, *middle;
        int count;
        const char *tail, *fragment; /* NULL: it is fine */
    } limits[] = {
        {"f(x: T[n]) -> y: T[", "(", 1000000, "n", "nested more than 64 deep"},
        {"f(x: T[n]) -> y: T[", "-", 1000000, "n]", "nested more than 64 deep"},
        {"f(x: T[n]) -> y: T[n] where ", "not ", 1000000, "n > 1", "nested more than 64 deep"},
        {"f(x: T[n]) -> y: T[n", " + 1", 1000000, "]", "nested more than 64 deep"},
        {"f(x: T[n]) -> y: T[n", " + 1", 62, "]", NULL},
        {"f(x: T[n]) -> y: T[n", " + 1", 64, "]", "nested more than 64 deep"},
        {"f(x: T[n]) -> y: T[", "(", 60, "n))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))]", NULL},
        {"", "(", 1000000, "", "expected the operator's name"},
        {"f", "(", 1000000, "", "expected the name of a parameter"},
        {"", "a", 1000000, "", "the name is longer than 63 characters"},
        {"f(x: T[", "[", 1000000, "", "expected a dimension"},
        {"f(x: ", "[", 1000000, "", "expected a type"},
        {"f(x: T[n]", "", 0, "!)", NULL},
        {"f(x0000: T[n]", ", x#: T[n]", 47, ") -> y: T[n]", NULL},
        {"f(x0000: T[n]", ", x#: T[n]", 48, ") -> y: T[n]", "more than 48 inputs"},
        {"f(x: T[n]", ", a#: int", 48, ") -> y: T[n]", NULL},
        {"f(x: T[n]", ", a#: int", 49, ") -> y: T[n]", "more than 48 attributes"},
        {"f(x: T[n]", ", a#: int", 48, ") -> y: T[n]?", "more than 48 attributes, with those that '?' implies"},
        {"f(x: T[n]) -> y: T[n]", ", y#: T[n]", 47, "", NULL},
        {"f(x: T[n]) -> y: T[n]", ", y#: T[n]", 48, "", "more than 48 outputs"},
        {"f(x: T[n]", ", x#: T[n#]", 47, ") -> y: T[n]", NULL},
        {"f(x: T[n]", ", x#: T[n#, m#]", 47, ") -> y: T[n]", "more than 48 dimensions"},
        {"f(x: T[*p]", ", x#: T[*p#]", 47, ") -> y: T[*p]", NULL},
        {"f(x: T[*p]", ", x#: T[*p#]", 47, ") -> y: T[*q], z: T[*r], w: T[*t]", "more than 50 names with '*'"},
        {"f(x: T[n]) -> y: T[n] where n > 0", ", n > #", 169, "", NULL},
        {"f(x: T[n]) -> y: T[n] where n > 0", ", n > #", 1000, "", "more than 512 operations and names"},
        {"f(x: T[n], a: 'x'", "|'x#'", 47, ") -> y: T[n]", NULL},
        {"f(x: T[n], a: 'x'", "|'x#'", 48, ") -> y: T[n]", "more than 48 choices"},
        {"f(x: T[n], a: ints = [1", ", #", 63, "]) -> y: T[n]", NULL},
        {"f(x: T[n], a: ints = [1", ", #", 64, "]) -> y: T[n]", "a list has at most 64 elements"},
        {"f(x: T[n], a: str = '", "long ", 1000, "') -> y: T[n]", NULL},
        {"f(x: T[n], a: float = 0.", "3", 300, ") -> y: T[n]", NULL},
        {"f(x: T[n], a: float = 0.", "3", 1000, ") -> y: T[n]", "the number is too large"},
    };
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        char *text = repeated(limits[i].head, limits[i].middle, limits[i].count, limits[i].tail);
        if (limits[i].fragment) {
            check_bad(text, limits[i].fragment);
        } else {
            tni_contract *contract;
            CHECK_ROW(tni_contract_parse(text, &contract) == TN_OK, "%s", tn_last_error());
            tni_contract_free(contract);
        }
        free(text);
    }
    tni_contract *contract;
    CHECK(tni_contract_parse(NULL, &contract) == TN_BAD_CONTRACT && strstr(tn_last_error(), "there is no text"));
}

/* Every contract of the catalogue, cut off at every place, and with one character replaced at every place: a contract
 * or a message, never a crash. */
static void test_damaged(void) {
    static const char garbage[] = "(])[*~?!,:;='|<>-+9 aT\x80";
    unsigned pick = 1;
    for (int i = 0; i < CATALOGUE_ROWS; i++) {
        char text[2048];
        size_t length = strlen(catalogue[i].contract);
        for (size_t cut = 0; cut <= 2 * length; cut++) {
            memcpy(text, catalogue[i].contract, length + 1);
            if (cut < length) {
                text[cut] = 0;
            } else if (cut < 2 * length) {
                pick = pick * 1664525u + 1013904223u;
                text[cut - length] = garbage[(pick >> 16) % (sizeof garbage - 1)];
            }
            tni_contract *contract;
            tn_status status = tni_contract_parse(text, &contract);
            bool fine = status == TN_OK || (status == TN_BAD_CONTRACT && points_at(tn_last_error(), text));
            CHECK_ROW(fine, "%s: %s", text, tn_last_error());
            tni_contract_free(contract);
        }
    }
}

int main(void) {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) check_bad(rows[i][0], rows[i][1]);
    test_limits();
    test_damaged();
    printf("%d rows\n", (int)(sizeof rows / sizeof rows[0]));
    return test_end();
}
