/* Strings that grow, numbers as text in any locale, and names that are nearly alike. */
#ifndef TNI_TEXT_H
#define TNI_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include <tenon/status.h>

/* A string that grows; writes after a failed allocation are dropped and `failed` stays set. */
typedef struct tni_text {
    char *data; /* NUL-terminated */
    size_t length, capacity;
    bool failed;
} tni_text;

void tni_text_add(tni_text *text, const char *format, ...) TN_PRINTF(2, 3);
void tni_text_put(tni_text *text, const char *string);         /* as it is; faster than tni_text_add for long ones */
void tni_text_json_string(tni_text *text, const char *string); /* quoted and escaped */
/* The fewest digits that read back as the same number, always with a '.' or an exponent: 1.0, 1e-5, -inf. */
void tni_text_double(tni_text *text, double value);
void tni_text_hex(tni_text *text, double value); /* every bit of it, as C writes constants: 0x1.8p+0 */
/* tn_fail with the message in `text`, which is freed. */
tn_status tni_fail_text(tn_status status, tni_text *text);

int tni_utf8_length(const char *string); /* of the character that it begins with; 0: none */
/* Reads digits [. digits] [e [+-] digits], all of text[0 … length - 1]. */
bool tni_read_double(const char *text, size_t length, double *value);
/* Letters to change, add or drop to get from one name to the other; stops counting at `most`. */
int tni_edit_distance(const char *a, const char *b, int most);
/* How far `name` is from `wanted`, where one can be a slip of the other; 0: it cannot, or is the same. One letter in
 * three may be wrong, or two neighbours have changed places. */
int tni_misspelt(const char *wanted, const char *name);

#endif
