/* The message of the last failure, one for each thread. */
#include <stdarg.h>
#include <stdio.h>

#include "status.h"

/* Long enough for a contract error, which quotes the signature and points into it. */
static _Thread_local char message[2048];
static _Thread_local bool is_said; /* since tni_expect_error */

const char *tn_status_name(tn_status status) {
    switch (status) {
#define NAME(name, text) \
    case TN_##name: return #name;
        TN_STATUSES(NAME)
#undef NAME
    }
    return "UNKNOWN";
}

const char *tn_status_text(tn_status status) {
    switch (status) {
#define TEXT(name, text) \
    case TN_##name: return text;
        TN_STATUSES(TEXT)
#undef TEXT
    }
    return "unknown status";
}

const char *tn_last_error(void) {
    return message;
}

void tni_expect_error(void) {
    is_said = false;
}

bool tni_error_is_said(void) {
    return is_said;
}

tn_status tn_fail(tn_status status, const char *format, ...) {
    /* An argument may point into the message itself (a caller that adds to it), so it is built beside it. */
    char text[sizeof message];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(message, sizeof message, "%s", text);
    is_said = true;
    return status;
}
