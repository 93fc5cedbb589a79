/* Colours, widths, wrapping. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static bool colours(void) {
    static int known = -1;
    if (known < 0) {
        const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
        known = isatty(STDOUT_FILENO) && !(no && *no) && !(term && strcmp(term, "dumb") == 0);
    }
    return known;
}

const char *style_text(style s) {
    static const char *const codes[] = {[PLAIN] = "\033[0m", [BOLD] = "\033[1m",   [DIM] = "\033[2m",
                                        [RED] = "\033[31m",  [GREEN] = "\033[32m", [YELLOW] = "\033[33m"};
    return colours() ? codes[s] : "";
}

int terminal_width(void) {
    struct winsize size;
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40;
    return !known ? 100 : size.ws_col > 120 ? 120 : size.ws_col;
}

bool progress_wanted(void) {
    return isatty(STDERR_FILENO);
}

/* Columns of the first `bytes` of UTF-8 text. */
static int columns(const char *text, int bytes) {
    int n = 0;
    for (int i = 0; i < bytes; i++) n += ((unsigned char)text[i] & 0xc0) != 0x80;
    return n;
}

void print_wrapped(const char *text, int column, int indent) {
    int width = terminal_width();
    bool first = true;
    for (text += strspn(text, " "); *text; text += strspn(text, " ")) {
        int word = (int)strcspn(text, " "), wide = columns(text, word);
        if (!first && column + 1 + wide > width) {
            printf("\n%*s", indent, "");
            column = indent;
        } else if (!first) {
            putchar(' ');
            column++;
        }
        printf("%.*s", word, text);
        column += wide;
        text += word;
        first = false;
    }
    putchar('\n');
}
