/* Strings that grow, and numbers as text. printf and strtod follow the host program's locale, where the decimal point
 * may be a comma; contracts and JSON may not, so both directions go through here. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arith.h"
#include "memory.h"
#include "text.h"

/* Room for `more` characters and the NUL. */
static bool reserve(tni_text *text, size_t more) {
    if (text->failed) return false;
    size_t need = text->length + more + 1;
    if (need <= text->capacity) return true;
    size_t capacity = text->capacity ? text->capacity : 128;
    while (capacity < need) capacity *= 2;
    char *data = tni_realloc(text->data, capacity);
    if (!data) {
        text->failed = true;
        return false;
    }
    text->data = data;
    text->capacity = capacity;
    return true;
}

void tni_text_add(tni_text *text, const char *format, ...) {
    if (!reserve(text, 64)) return;
    size_t room = text->capacity - text->length;
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(text->data + text->length, room, format, args);
    if (length >= 0 && (size_t)length >= room && reserve(text, (size_t)length)) {
        vsnprintf(text->data + text->length, (size_t)length + 1, format, again);
    }
    va_end(again);
    va_end(args);
    if (!text->failed && length > 0) text->length += (size_t)length;
}

void tni_text_put(tni_text *text, const char *string) {
    size_t length = strlen(string);
    if (!reserve(text, length)) return;
    memcpy(text->data + text->length, string, length + 1);
    text->length += length;
}

int tni_utf8_length(const char *string) {
    const unsigned char *s = (const unsigned char *)string;
    int length = s[0] < 0x80 ? 1 : s[0] < 0xC2 ? 0 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : s[0] < 0xF5 ? 4 : 0;
    for (int i = 1; i < length; i++) {
        if ((s[i] & 0xC0) != 0x80) return 0;
    }
    bool overlong = (s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xF0 && s[1] < 0x90);
    bool beyond = (s[0] == 0xED && s[1] >= 0xA0) || (s[0] == 0xF4 && s[1] >= 0x90); /* surrogates; past U+10FFFF */
    return length > 1 && (overlong || beyond) ? 0 : length;
}

/* Characters from s on that stand for themselves in JSON, in bytes. */
static size_t plain_length(const char *string) {
    for (size_t n = 0;; n += (size_t)tni_utf8_length(string + n)) {
        const unsigned char c = (unsigned char)string[n];
        if (tni_utf8_length(string + n) == 0 || c < 0x20 || c == '"' || c == '\\' || c == 0x7F) return n;
    }
}

static void add_bytes(tni_text *text, const char *bytes, size_t n) {
    if (!reserve(text, n)) return;
    memcpy(text->data + text->length, bytes, n);
    text->length += n;
    text->data[text->length] = 0;
}

void tni_text_json_string(tni_text *text, const char *string) {
    add_bytes(text, "\"", 1);
    while (*string) {
        size_t plain = plain_length(string);
        add_bytes(text, string, plain);
        string += plain;
        unsigned char c = (unsigned char)*string;
        if (c == 0) break;
        if (tni_utf8_length(string) == 0) {
            add_bytes(text, "\\ufffd", 6);
        } else {
            tni_text_add(text, c == '"' || c == '\\' ? "\\%c" : "\\u%04x", c);
        }
        string++;
    }
    add_bytes(text, "\"", 1);
}

void tni_text_double(tni_text *text, double value) {
    if (isnan(value) || isinf(value)) {
        tni_text_add(text, "%s", isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
        return;
    }
    char digits[64];
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value) break; /* the same locale on both sides */
    }
    char out[72];
    size_t n = 0;
    bool point = false;
    for (const char *s = digits; *s; s++) {
        bool plain = (*s >= '0' && *s <= '9') || *s == '-';
        if (*s == 'e') { /* e-05 is written e-5 */
            point = true;
            out[n++] = *s++;
            if (*s == '-') out[n++] = '-';
            while (s[1] == '0' && s[2]) s++;
        } else if (plain) {
            out[n++] = *s;
        } else if (!point) { /* the locale's point, which may be several bytes */
            point = true;
            out[n++] = '.';
        }
    }
    out[n] = 0;
    tni_text_add(text, point ? "%s" : "%s.0", out);
}

void tni_text_hex(tni_text *text, double value) {
    char digits[64], out[64];
    size_t n = 0;
    bool point = false;
    snprintf(digits, sizeof digits, "%a", value);
    for (const char *s = digits; *s; s++) {
        bool plain = strchr("0123456789abcdefxp+-", *s) != NULL;
        if (plain || !point) out[n++] = plain ? *s : '.'; /* as above */
        point |= !plain;
    }
    out[n] = 0;
    tni_text_put(text, out);
}

bool tni_read_double(const char *text, size_t length, double *value) {
    char half[16], number[400];
    snprintf(half, sizeof half, "%.1f", 0.5); /* "0.5" in the host's locale: what stands between is its point */
    size_t point = strlen(half) - 2, n = 0;
    for (size_t i = 0; i < length; i++) {
        if (n + point + 1 >= sizeof number) return false;
        if (text[i] == '.') {
            memcpy(number + n, half + 1, point);
            n += point;
        } else {
            number[n++] = text[i];
        }
    }
    number[n] = 0;
    char *end;
    *value = strtod(number, &end);
    return n > 0 && *end == 0;
}

tn_status tni_fail_text(tn_status status, tni_text *text) {
    if (!text->failed) tn_fail(status, "%s", text->data);
    tni_free(text->data);
    return text->failed ? TN_NO_MEMORY : status;
}

/* ---- names that are nearly alike --------------------------------------------------------------------------------- */

int tni_edit_distance(const char *a, const char *b, int most) {
    enum { LONGEST = 64 };
    size_t n = strlen(a), m = strlen(b);
    if (n >= LONGEST || m >= LONGEST) return most;
    int row[LONGEST]; /* row[j]: from the letters of a so far to the first j of b */
    for (size_t j = 0; j <= m; j++) row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int change = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = (int)min(change, min(row[j], row[j - 1]) + 1);
        }
    }
    return (int)min(row[m], most);
}

/* Two neighbours have changed places, and nothing else is different. */
static bool is_swapped(const char *a, const char *b) {
    size_t i = 0;
    while (a[i] && a[i] == b[i]) i++;
    return a[i] && b[i] && a[i] == b[i + 1] && a[i + 1] == b[i] && strcmp(a + i + 2, b + i + 2) == 0;
}

int tni_misspelt(const char *wanted, const char *name) {
    const size_t letters = strlen(wanted) < strlen(name) ? strlen(wanted) : strlen(name);
    const int most = letters >= 6 ? 2 : letters >= 3 ? 1 : 0;
    if (is_swapped(wanted, name)) return 1;
    const int distance = tni_edit_distance(wanted, name, most + 1);
    return distance > most ? 0 : distance;
}
