/* Who does the passes of a program. A backend is one of these structs; src/fuse/backends.c lists all of them, the best
 * first.
 *
 * A backend is given the lowered graph and its passes (planner.h), which know of no device, and makes of them whatever
 * it runs. What that is hangs off program->own and lives in program->arena. */
#ifndef TNI_FUSE_BACKEND_H
#define TNI_FUSE_BACKEND_H

#include "program.h"

struct tni_binding;

typedef struct tni_backend {
    const char *name;
    tn_device_kind device;
    /* A reduction over more than rows that is nothing but an output is written there, not to the workspace first. */
    bool writes_sums;
    bool deviates;   /* It sums up squares of what values are off their mean without having that mean (deviations.c). */
    bool rows_first; /* Sums over rows of rows wait for less where it sums up rows first (rows_first.c). */
    bool stretches;  /* It reads elements that stand for several columns (stretch.c). */
    bool keeps_shared; /* What many rows share is made once, by a pass of its own (shared.c). */
    bool slices;       /* It runs a program of several passes slice by slice, where slices.c finds some. */
    /* Whether a formula that reduces along this dimension alone has it as the last one (turn.c); NULL: never. */
    bool (*turns)(const struct tni_binding *b, int32_t along);
    /* Whether it takes a program, by its cost; NULL: all. A row has the same bits in every batch, so what goes by the
     * cost must give the bits of the backend behind it in the list. */
    bool (*accepts)(const tni_program *program);
    tn_status (*plan)(struct tni_binding *b);     /* sets own; may take workspace */
    tn_status (*emit)(tni_program *, tni_text *); /* the text that it compiles; NULL: it compiles nothing */
    tn_status (*load)(tni_program *program,
                      const tn_call *call); /* compiles, or finds what is compiled; NULL: neither */
    tn_status (*run)(const tni_program *program, const tn_call *call);
    void (*release)(tni_program *program); /* what is not in the arena; NULL: nothing */
    void (*close)(void); /* no program is left: gives back what it has compiled and kept; NULL: it keeps nothing */
} tni_backend;

/* An ordered list, which ends with NULL and stays where it is. */
void tni_set_backends(const tni_backend *const *list);
const tni_backend *const *tni_backends(void);

#endif
