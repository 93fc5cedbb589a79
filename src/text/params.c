/* A reader of declarations that does not understand C: it looks for the words that matter, in a text whose comments,
 * strings and preprocessor lines are blank. */
#include "params.h"

#include <ctype.h>
#include <string.h>

#include "core/host/text.h"

static bool is_word(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

/* Blanks until `end`, leaving line ends. */
static char *blank(char *from, const char *end) {
    for (; from < end; from++) {
        if (*from != '\n') *from = ' ';
    }
    return from;
}

static char *end_of_string(char *s) {
    const char quote = *s++;
    while (*s && *s != quote && *s != '\n') s += s[0] == '\\' && s[1] ? 2 : 1;
    return *s == quote ? s + 1 : s;
}

static char *end_of_line(char *s) {
    while (*s && *s != '\n') s += s[0] == '\\' && s[1] ? 2 : 1; /* a line may go on */
    return s;
}

/* `extern "C"` stays: it says where functions of C are. */
char *tni_blank_text(const char *text, tni_arena *arena) {
    char *made = tni_arena_text(arena, text, strlen(text));
    bool begins = true; /* nothing but blanks on this line so far */
    for (char *s = made; s && *s;) {
        char *end = NULL;
        if (s[0] == '/' && s[1] == '/') {
            end = s + strcspn(s, "\n");
        } else if (s[0] == '/' && s[1] == '*') {
            end = strstr(s + 2, "*/");
            end = end ? end + 2 : s + strlen(s);
        } else if (*s == '"' || *s == '\'') {
            end = end_of_string(s);
            if (end - s == 3 && s[1] == 'C') s = end;
        } else if (*s == '#' && begins) {
            end = end_of_line(s);
        }
        if (end) {
            s = blank(s, end);
        } else {
            begins = *s == '\n' || (begins && isspace((unsigned char)*s));
            s++;
        }
    }
    return made;
}

int32_t tni_line_of(const char *text, int32_t at) {
    int32_t line = 1;
    for (int32_t i = 0; i < at && text[i]; i++) line += text[i] == '\n';
    return line;
}

/* Behind the bracket that closes the one at s; at the end where none does. */
static const char *behind(const char *s) {
    const char open = *s, close = open == '(' ? ')' : open == '{' ? '}' : open == '[' ? ']' : '>';
    int depth = 0;
    for (; *s; s++) {
        depth += (*s == open) - (*s == close);
        if (depth == 0) return s + 1;
    }
    return s;
}

static const char *skip_space(const char *s) {
    return s + strspn(s, " \t\r\n");
}

/* The word that ends before s; its length is 0 where none does. */
static const char *word_before(const char *begin, const char *s, size_t *length) {
    while (s > begin && isspace((unsigned char)s[-1])) s--;
    const char *end = s;
    while (s > begin && is_word(s[-1])) s--;
    *length = (size_t)(end - s);
    return s;
}

static bool is(const char *word, size_t length, const char *other) {
    return strlen(other) == length && memcmp(word, other, length) == 0;
}

static bool is_among(const char *word, size_t length, const char *const *names) {
    for (; *names; names++) {
        if (is(word, length, *names)) return true;
    }
    return false;
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */

typedef struct reader {
    const char *text, *clean; /* the clean one is searched */
    tni_arena *arena;
    tn_status status;
} reader;

static char *keep(reader *r, const char *begin, const char *end) {
    while (begin < end && isspace((unsigned char)*begin)) begin++;
    while (end > begin && isspace((unsigned char)end[-1])) end--;
    char *made = tni_arena_text(r->arena, begin, (size_t)(end - begin));
    if (!made) r->status = TN_NO_MEMORY;
    return made;
}

/* Adds a word to a type: "unsigned" and "int" have a space between them. */
static void add_word(char *type, const char *word, size_t length) {
    size_t n = strlen(type);
    if (n && is_word(*word) && is_word(type[n - 1])) type[n++] = ' ';
    memcpy(type + n, word, length);
    type[n + length] = 0;
}

/* `const float *__restrict__ x = nullptr`, `T (&a)[4]` */
static void read_param(reader *r, const char *begin, const char *end, tni_cparam *param) {
    static const char *const quiet[] = {"volatile",          "__restrict__", "restrict", "__restrict",
                                        "__grid_constant__", "register",     NULL};
    begin = skip_space(begin);
    *param = (tni_cparam){.line = tni_line_of(r->clean, (int32_t)(begin - r->clean)),
                          .at = (int32_t)(begin - r->clean),
                          .length = (int32_t)(end - begin)};
    char *type = tni_arena_alloc(r->arena, 2 * (size_t)(end - begin) + 2), *last = NULL;
    size_t n_last = 0;
    param->name = param->type = type;
    if (!type) {
        r->status = TN_NO_MEMORY;
        return;
    }
    for (const char *s = begin; s < end && *s != '=';) {
        size_t n = 0;
        while (s + n < end && is_word(s[n])) n++;
        if (*s == '*' || *s == '[') {
            if (last) add_word(type, last, n_last), last = NULL;
            param->pointers++;
            s = *s == '[' ? behind(s) : s + 1;
        } else if (n == 0) {
            const bool joins = *s == ':' || *s == '<';
            if (last && joins) add_word(type, last, n_last), last = NULL;
            const char *next = *s == '<' ? behind(s) : s + 1;
            if (joins) add_word(type, s, (size_t)(next - s));
            s = next;
        } else if (is(s, n, "const")) {
            if (!param->pointers) param->is_const = true;
            s += n;
        } else {
            if (!is_among(s, n, quiet)) {
                if (last) add_word(type, last, n_last);
                last = (char *)(uintptr_t)s;
                n_last = n;
            }
            s += n;
        }
    }
    /* The last word is the name, unless there is no other: `int`. A name in front of [] was taken for a part of it. */
    if (last && (*type || param->pointers)) {
        param->name = keep(r, last, last + n_last);
    } else if (last) {
        add_word(type, last, n_last);
        param->name = "";
    } else {
        char *space = strrchr(type, ' ');
        const bool array = memchr(begin, '[', (size_t)(end - begin)) != NULL;
        param->name = array && space ? keep(r, space + 1, type + strlen(type)) : "";
        if (array && space) *space = 0;
    }
}

static const char *next_comma(const char *s, const char *end) {
    for (; s < end && *s != ','; s++) {
        if (*s == '(' || *s == '[' || *s == '<') s = behind(s) - 1;
    }
    return s < end ? s : end;
}

static void read_params(reader *r, const char *open, const char *close, tni_cfunction *f) {
    f->params = tni_arena_alloc(r->arena, TNI_MOST_PARAMS * sizeof *f->params);
    if (!f->params) {
        r->status = TN_NO_MEMORY;
        return;
    }
    const char *s = skip_space(open);
    if (s >= close || (is(s, 4, "void") && !is_word(s[4]) && skip_space(s + 4) >= close)) return;
    for (; s < close && f->n_params < TNI_MOST_PARAMS && r->status == TN_OK; s++) {
        const char *end = next_comma(s, close);
        read_param(r, s, end, &f->params[f->n_params++]);
        s = end;
    }
}

/* ---- functions --------------------------------------------------------------------------------------------------- */

/* Where the declaration begins that s is in. */
static const char *declaration_of(const reader *r, const char *s) {
    while (s > r->clean && s[-1] != ';' && s[-1] != '}' && s[-1] != '{') s--;
    return skip_space(s);
}

static bool has_word(const char *begin, const char *end, const char *word) {
    const size_t n = strlen(word);
    for (const char *s = begin; s + n <= end; s++) {
        if (memcmp(s, word, n) == 0 && (s == begin || !is_word(s[-1])) && !is_word(s[n])) return true;
    }
    return false;
}

/* A function whose parameters begin at `open`; false: it has no body, or is no function. */
static bool read_function(reader *r, const char *open, tni_cfunction *f) {
    static const char *const not_names[] = {"if",        "for",           "while",      "switch",   "return",
                                            "sizeof",    "defined",       "__declspec", "decltype", "alignas",
                                            "__align__", "__attribute__", NULL};
    const char *close = behind(open), *body = skip_space(close);
    size_t n;
    const char *name = word_before(r->clean, open, &n);
    if (n == 0 || *body != '{' || isdigit((unsigned char)*name) || is_among(name, n, not_names)) return false;
    const char *begin = declaration_of(r, name);
    *f = (tni_cfunction){.name = keep(r, name, name + n),
                         .line = tni_line_of(r->clean, (int32_t)(name - r->clean)),
                         .body = (int32_t)(body - r->clean),
                         .end = (int32_t)(behind(body) - r->clean)};
    f->is_static = has_word(begin, name, "static");
    if (is(begin, 8, "template")) {
        const char *angle = skip_space(begin + 8);
        if (*angle == '<') f->templates = keep(r, angle + 1, behind(angle) - 1);
    }
    read_params(r, open + 1, close - 1, f);
    return r->status == TN_OK;
}

/* The '(' of the parameters behind `__global__`: what comes before may have brackets of its own. */
static const char *params_behind(const char *s) {
    static const char *const bounds[] = {"__launch_bounds__", "__cluster_dims__", "__block_size__",
                                         "__maxnreg__",       "__attribute__",    NULL};
    const char *from = s;
    for (;;) {
        s += strcspn(s, "(;{}");
        size_t n;
        const char *word = word_before(from, s, &n);
        if (*s != '(' || !is_among(word, n, bounds)) return *s == '(' ? s : NULL;
        s = behind(s);
    }
}

static tn_status add_function(reader *r, tni_cfunctions *found, const tni_cfunction *f) {
    enum { STEP = 16 };
    if (found->n % STEP == 0) {
        tni_cfunction *more = tni_arena_alloc(r->arena, (size_t)(found->n + STEP) * sizeof *more);
        if (!more) return TN_NO_MEMORY;
        if (found->n) memcpy(more, found->functions, (size_t)found->n * sizeof *more);
        found->functions = more;
    }
    found->functions[found->n++] = *f;
    return TN_OK;
}

static tn_status find_global(reader *r, tni_cfunctions *found) {
    static const char word[] = "__global__";
    for (const char *s = r->clean; (s = strstr(s, word));) {
        s += sizeof word - 1;
        tni_cfunction f;
        const char *open = params_behind(s);
        if (open && read_function(r, open, &f)) TN_TRY(add_function(r, found, &f));
        TN_TRY(r->status);
    }
    return TN_OK;
}

/* Functions outside of all braces but those of `extern "C" {`. */
static tn_status find_host(reader *r, tni_cfunctions *found) {
    for (const char *s = r->clean; *s;) {
        tni_cfunction f;
        if (*s == '(') {
            if (read_function(r, s, &f)) TN_TRY(add_function(r, found, &f));
            TN_TRY(r->status);
            s = behind(s);
        } else if (*s == '{') {
            const char *before = s;
            while (before > r->clean && isspace((unsigned char)before[-1])) before--;
            s = before > r->clean && before[-1] == '"' ? s + 1 : behind(s);
        } else {
            s++;
        }
    }
    return TN_OK;
}

/* `__constant__ float filter[9];` */
static tn_status find_constants(reader *r, tni_cfunctions *found) {
    enum { MOST = 32 };
    found->constants = tni_arena_alloc(r->arena, MOST * sizeof *found->constants);
    if (!found->constants) return TN_NO_MEMORY;
    for (const char *s = r->clean; (s = strstr(s, "__constant__")) && found->n_constants < MOST; s++) {
        size_t n;
        const char *end = s + strcspn(s, "[;="), *name = word_before(s, end, &n);
        const int32_t line = tni_line_of(r->clean, (int32_t)(name - r->clean));
        if (n) found->constants[found->n_constants++] = (tni_cvariable){keep(r, name, name + n), line};
    }
    return r->status;
}

tn_status tni_find_functions(const char *text, bool host, tni_arena *arena, tni_cfunctions *found) {
    reader r = {.text = text, .clean = tni_blank_text(text, arena), .arena = arena, .status = TN_OK};
    *found = (tni_cfunctions){0};
    if (!r.clean) return TN_NO_MEMORY;
    if (host) return find_host(&r, found);
    TN_TRY(find_global(&r, found));
    return find_constants(&r, found);
}
