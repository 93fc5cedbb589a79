/* libtenon_tensorflow.so: what tf.load_op_library opens. TensorFlow collects the ops that are registered meanwhile and
 * makes Python functions of them, so all there is to do is to register: the rest is in libtenon.so, which the process
 * has open for all. A copy of this file, opened when the table has grown, registers what is new. */
#include <tenon/status.h>

TN_API tn_status tn_tensorflow_register(void);

__attribute__((constructor)) static void load(void) {
    tn_tensorflow_register(); /* tn_tensorflow_status() says how it went */
}
