/* Device code of a release is packed (.xz): kernels that differ in a type or a size have much in common. */
#ifndef TNI_UNPACK_H
#define TNI_UNPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool tni_is_packed(const uint8_t *data, const uint8_t *end);
/* How many bytes it unpacks to; 0: it is damaged. */
size_t tni_unpacked_size(const uint8_t *data, const uint8_t *end);
/* Into `size` bytes, which is what tni_unpacked_size said. False: it is damaged. Never reads or writes out of
 * bounds. */
bool tni_unpack(const uint8_t *data, const uint8_t *end, uint8_t *to, size_t size);

#endif
