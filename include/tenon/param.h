/* Dynamic parameters: a number that changes between calls (a learning rate, a scale) is a 0-dim input, and this is one
 * that is set with one call. Nothing is compiled or launched anew; a captured CUDA graph uses the new value from its
 * next replay on.
 *
 *     tn_param *lr;
 *     tn_param_make(TN_F32, (tn_device){TN_CUDA, 0}, 1e-3, &lr);
 *     … tn_param_tensor(lr) is an input like any other …
 *     tn_param_set(lr, 1e-4, stream); */
#ifndef TENON_PARAM_H
#define TENON_PARAM_H

#include <tenon/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tn_param tn_param;

/* In the device's memory, with this value. type: a real one. The caller gives it back with tn_param_free. */
TN_API tn_status tn_param_make(tn_type type, tn_device device, double value, tn_param **param);
/* Nothing that uses it may still run, and no other thread may use it meanwhile. NULL is fine. */
TN_API void tn_param_free(tn_param *param);

/* The tensor is the parameter's, and goes with it. */
TN_API const tn_tensor *tn_param_tensor(const tn_param *param);

/* From any thread. On a GPU in the order of `stream` (CUstream; NULL: the default one), without waiting: what was put
 * there before still gets the old value, what comes after the new one. Not while that stream is captured. On the CPU at
 * once; stream is not looked at. */
TN_API tn_status tn_param_set(tn_param *param, double value, void *stream);

#ifdef __cplusplus
}
#endif
#endif
