/* A sample, taken apart: what sample.c reads from the text and sample_random.c changes before a call is made of it. */
#ifndef TNI_SETTING_H
#define TNI_SETTING_H

#include "core/host/memory.h"
#include "sample.h"

/* What is said of one input. */
typedef struct tni_input_setting {
    bool present;
    bool positive;
    tn_type type;      /* TN_NO_TYPE: not said */
    int32_t count;     /* explicit shapes: 1, or the length of a list; -1: none, the contract's shape */
    tni_dims *shapes;  /* (count) */
    const char *below; /* "v" or "10"; NULL: not said */
    tni_order order;
    const char *total; /* of offsets: "nnz" or "10" */
} tni_input_setting;

typedef struct tni_setting {
    const tni_contract *contract;
    const char *args; /* the text, for messages */
    tni_arena *arena;
    tn_type types[TNI_MAX_TYPES];
    int64_t dims[TNI_MAX_NAMES]; /* -1: not said */
    tni_dims packs[TNI_MAX_PACKS];
    bool pack_set[TNI_MAX_PACKS];
    tni_dims
        *elements[TNI_MAX_PACKS]; /* (n_elements): a pack that differs from element to element of a list; or NULL */
    int32_t n_elements;           /* length of the lists */
    tn_value attrs[TNI_MAX_ARGS]; /* TN_ATTR_UNSET: not said */
    tni_input_setting inputs[TNI_MAX_ARGS];
} tni_setting;

/* Reads the text. The setting and all it points to live in `arena`. */
tn_status tni_setting_parse(const tni_contract *contract, const char *args, tn_type T, tni_arena *arena,
                            tni_setting **made);
/* The shapes that follow, checked by tni_bind. The case owns the setting's arena from then on. */
tn_status tni_setting_case(const tni_setting *setting, tni_case **made);
/* "softmax: sample 's=[4] axs=0': " and the message. */
tn_status tni_setting_fail(const tni_setting *setting, tn_status status, const char *format, ...) TN_PRINTF(3, 4);
/* The last message as a part of ours: its "softmax: " is not said twice. */
tn_status tni_setting_pass_on(const tni_setting *setting, tn_status status);
/* Of several types the usual one: i64, as frameworks index with it; f32. */
tn_type tni_usual_type(uint32_t mask);
/* The value of attribute i: said, or its default (kind TN_ATTR_UNSET: neither). */
tn_value tni_setting_attr(const tni_setting *setting, int32_t i);
/* The dimensions of input i by the contract; `element` counts in a list. `~` dimensions are whole. */
tn_status tni_setting_shape(const tni_setting *setting, int32_t i, int32_t element, tni_dims *shape);
/* How `~` lets input i differ from that shape: may_be_one[d] for each dimension, and how many leading ones may be left
 * out. `may_be_one` comes in false. */
void tni_setting_broadcast(const tni_setting *setting, int32_t i, bool may_be_one[TN_MAX_RANK], int32_t *droppable);
/* Every size that the sample says: dimensions, the elements of packs, and of attributes that are shapes (`*shape`).
 * slots: room for TNI_MAX_SLOTS. Returns how many. */
enum { TNI_MAX_SLOTS = TNI_MAX_NAMES + (TNI_MAX_PACKS + TNI_MAX_ARGS) * TN_MAX_RANK };
int32_t tni_setting_slots(tni_setting *setting, int64_t **slots);
/* Is attribute i a shape of its own: spread, or what a shape function works on? */
bool tni_attr_is_shape(const tni_contract *contract, int32_t i);

#endif
