/* SHA-256, for telling files apart as sha256sum does. */
#ifndef TNI_SHA256_H
#define TNI_SHA256_H

#include <stdbool.h>
#include <stddef.h>

enum { TNI_SHA256_TEXT = 65 }; /* 64 hexadecimal digits and the end */

void tni_sha256(const void *bytes, size_t count, char text[static TNI_SHA256_TEXT]);
bool tni_sha256_file(const char *path, char text[static TNI_SHA256_TEXT]); /* false: it cannot be read */

#endif
