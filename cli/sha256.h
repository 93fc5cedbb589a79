/* SHA-256, for telling files apart as sha256sum does. */
#ifndef CLI_SHA256_H
#define CLI_SHA256_H

#include <stdbool.h>

bool sha256_file(const char *path, char text[static 65]); /* false: it cannot be read */

#endif
