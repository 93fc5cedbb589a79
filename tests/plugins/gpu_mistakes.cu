// Operators with the mistakes that CUDA kernels really have, one each, written as people write them: `tenon check
// --device cuda` must catch every one and say what it is (tests/python/test_gpu_mistakes.py). The references are right.
//     nvcc -shared -Xcompiler -fPIC -std=c++20 -lineinfo -I include gpu_mistakes.cu -o gpu_mistakes.so
#include <tenon/op.h>

enum { BLOCK = 256 };

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

// ---- launching ------------------------------------------------------------------------------------------------------

static cudaStream_t stream_of(const tn_call *call) {
    return (cudaStream_t)call->host->stream;
}

static tn_status launched(const tn_call *call) {
    const cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess) return TN_OK;
    return tn_fail(TN_SYSTEM, "%s: %s: %s", call->name, cudaGetErrorName(error), cudaGetErrorString(error));
}

// kernel<T><<<grid, BLOCK, 0, stream>>>(x, y, n) for the first input and the first output.
template <class F> static tn_status launch(const tn_call *call, int64_t grid, cudaStream_t stream, F kernels) {
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    const int64_t n = tn_count(x);
    if (grid == 0) return TN_OK;
    if (x->type == TN_F32) {
        kernels.f32<<<(unsigned)grid, BLOCK, 0, stream>>>((const float *)x->data, (float *)y->data, n);
    } else {
        kernels.f64<<<(unsigned)grid, BLOCK, 0, stream>>>((const double *)x->data, (double *)y->data, n);
    }
    return launched(call);
}

template <class T> using kernel_of = void (*)(const T *, T *, int64_t);
struct both {
    kernel_of<float> f32;
    kernel_of<double> f64;
};
#define BOTH(name)                \
    both {                        \
        name<float>, name<double> \
    }

static tn_status launch_all(const tn_call *call, both kernels) {
    return launch(call, ceil_div(tn_count(tn_in(call, 0)), BLOCK), stream_of(call), kernels);
}

#define PLACE ((int64_t)blockIdx.x * blockDim.x + threadIdx.x)

// ---- the kernels: y = 2 x, unless something else is said ------------------------------------------------------------

template <class T> __global__ void right(const T *x, T *y, int64_t n) {
    const int64_t i = PLACE;
    if (i < n) y[i] = 2 * x[i];
}

template <class T> __global__ void write_past(const T *x, T *y, int64_t n) {
    const int64_t i = PLACE;
    if (i <= n) y[i] = 2 * (i < n ? x[i] : 1); // <=
}

template <class T> __global__ void read_past(const T *x, T *y, int64_t n) {
    const int64_t i = PLACE;
    if (i < n) y[i] = 2 * x[i] + 0 * x[i + 1]; // the last has no neighbour
}

template <class T> __global__ void far_away(const T *x, T *y, int64_t n) {
    const int64_t i = PLACE;
    if (i < n) y[i + ((int64_t)1 << 40)] = 2 * x[i];
}

template <class T> __global__ void index_32(const T *x, T *y, int64_t n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x; // int
    if (i < n) y[i] = 2 * x[i];
}

template <class T> __global__ void vectors(const T *x, T *y, int64_t n) {
    const int64_t i = 2 * PLACE;
    if (i + 1 < n) { // a pair at once, wherever x begins
        using pair = typename std::conditional<sizeof(T) == 4, float2, double2>::type;
        const pair p = *(const pair *)(x + i);
        y[i] = 2 * p.x;
        y[i + 1] = 2 * p.y;
    } else if (i < n) {
        y[i] = 2 * x[i];
    }
}

// y = max(x, 0)
template <class T> __global__ void drops_nan(const T *x, T *y, int64_t n) {
    const int64_t i = PLACE;
    if (i < n) y[i] = fmax(x[i], (T)0);
}

// y = max(x, 0)
template <class T> __global__ void unwritten(const T *x, T *y, int64_t n) {
    const int64_t i = PLACE;
    if (i < n && x[i] > 0) y[i] = x[i]; // and else?
}

// y = the sum of x
template <class T> __global__ void race(const T *x, T *y, int64_t n) {
    const int64_t i = PLACE;
    if (i < n) *y = *y + x[i]; // all threads at once
}

// y[row] = the sum of the row
template <class T> __global__ void shared_tail(const T *x, T *y, int64_t columns) {
    __shared__ T sums[BLOCK];
    const T *row = x + blockIdx.x * columns;
    T sum = 0;
    for (int64_t i = threadIdx.x; i < columns; i += BLOCK) sum += row[i];
    if (threadIdx.x < columns) sums[threadIdx.x] = sum; // the others have nothing to say
    __syncthreads();
    for (int step = BLOCK / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) sums[threadIdx.x] += sums[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) y[blockIdx.x] = sums[0];
}

// Every row backwards; rows of at most 1024
template <class T> __global__ void no_barrier(const T *x, T *y, int64_t columns) {
    __shared__ T row[1024];
    for (int64_t i = threadIdx.x; i < columns; i += BLOCK) row[i] = x[blockIdx.x * columns + i];
    // __syncthreads() belongs here
    for (int64_t i = threadIdx.x; i < columns; i += BLOCK) y[blockIdx.x * columns + i] = row[columns - 1 - i];
}

// y = x²
template <class T> __global__ void square(const T *x, T *y, int64_t n) {
    const int64_t i = PLACE;
    if (i < n) y[i] = x[i] * x[i];
}

// ---- the calls ------------------------------------------------------------------------------------------------------

#define RUN(name, ...)                                                               \
    static tn_status run_##name(const tn_call *call, void *) {                       \
        const tn_view *x = tn_in(call, 0);                                           \
        const int64_t n = tn_count(x), rows = n ? tn_product(x, 0, x->ndim - 1) : 0; \
        (void)n, (void)rows;                                                         \
        __VA_ARGS__                                                                  \
    }

RUN(right, return launch_all(call, BOTH(right));)
RUN(write_past, return launch(call, n / BLOCK + 1, stream_of(call), BOTH(write_past));)
RUN(read_past, return launch_all(call, BOTH(read_past));)
RUN(far_away, return launch_all(call, BOTH(far_away));)
RUN(index_32, return launch_all(call, BOTH(index_32));)
RUN(vectors, return launch_all(call, BOTH(vectors));)
RUN(drops_nan, return launch_all(call, BOTH(drops_nan));)
RUN(unwritten, return launch_all(call, BOTH(unwritten));)
RUN(tail, return launch(call, n / BLOCK, stream_of(call), BOTH(right));)
RUN(stream, return launch(call, ceil_div(n, BLOCK), 0, BOTH(right));)
RUN(square, return launch_all(call, BOTH(square));)
RUN(race, {
    cudaMemsetAsync(tn_out(call, 0)->data, 0, tn_type_size(x->type), stream_of(call));
    return launch_all(call, BOTH(race));
})

// One block for each row; the kernel is told how long they are.
static tn_status launch_rows(const tn_call *call, both kernels) {
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    const int64_t columns = x->shape[x->ndim - 1], rows = tn_product(x, 0, x->ndim - 1);
    const cudaStream_t stream = stream_of(call);
    if (rows == 0) return TN_OK;
    if (x->type == TN_F32) {
        kernels.f32<<<(unsigned)rows, BLOCK, 0, stream>>>((const float *)x->data, (float *)y->data, columns);
    } else {
        kernels.f64<<<(unsigned)rows, BLOCK, 0, stream>>>((const double *)x->data, (double *)y->data, columns);
    }
    return launched(call);
}

RUN(shared_tail, return launch_rows(call, BOTH(shared_tail));)
RUN(no_barrier, return launch_rows(call, BOTH(no_barrier));)

static bool short_rows(const tn_call *call) {
    const tn_view *x = tn_in(call, 0);
    return x->shape[x->ndim - 1] <= 1024;
}

// ---- references -----------------------------------------------------------------------------------------------------

template <class F> static tn_status each(const tn_call *call, F f) {
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    for (int64_t i = 0; i < tn_count(x); i++) tn_set(y->type, y->data, i, f(tn_get(x->type, x->data, i)));
    return TN_OK;
}

static tn_status ref_twice(const tn_call *call, void *) {
    return each(call, [](double x) { return 2 * x; });
}

static tn_status ref_relu(const tn_call *call, void *) {
    return each(call, [](double x) { return x < 0 ? 0 : x; });
}

static tn_status ref_square(const tn_call *call, void *) {
    return each(call, [](double x) { return x * x; });
}

static tn_status ref_sum(const tn_call *call, void *) {
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    const int64_t rows = tn_count(y), columns = rows ? tn_count(x) / rows : 0;
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0;
        for (int64_t i = 0; i < columns; i++) sum += tn_get(x->type, x->data, r * columns + i);
        tn_set(y->type, y->data, r, sum);
    }
    return TN_OK;
}

static tn_status ref_backwards(const tn_call *call, void *) {
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    const int64_t columns = x->shape[x->ndim - 1];
    for (int64_t i = 0; i < tn_count(x); i++) {
        tn_set(y->type, y->data, i, tn_get(x->type, x->data, i / columns * columns + columns - 1 - i % columns));
    }
    return TN_OK;
}

// dx = x dy: half of what it is
static tn_status ref_square_grad(const tn_call *call, void *) {
    const tn_view *x = tn_in(call, 0), *dy = tn_in(call, 1), *dx = tn_out(call, 0);
    for (int64_t i = 0; i < tn_count(x); i++) {
        tn_set(dx->type, dx->data, i, tn_get(x->type, x->data, i) * tn_get(dy->type, dy->data, i));
    }
    return TN_OK;
}

template <class T> __global__ void square_grad(const T *x, const T *dy, T *dx, int64_t n) {
    const int64_t i = PLACE;
    if (i < n) dx[i] = x[i] * dy[i];
}

static tn_status run_square_grad(const tn_call *call, void *) {
    const tn_view *x = tn_in(call, 0), *dy = tn_in(call, 1), *dx = tn_out(call, 0);
    const int64_t n = tn_count(x);
    const unsigned grid = (unsigned)ceil_div(n, BLOCK);
    const cudaStream_t stream = stream_of(call);
    if (n == 0) return TN_OK;
    if (x->type == TN_F32) {
        square_grad<<<grid, BLOCK, 0, stream>>>((const float *)x->data, (const float *)dy->data, (float *)dx->data, n);
    } else {
        square_grad<<<grid, BLOCK, 0, stream>>>((const double *)x->data, (const double *)dy->data, (double *)dx->data,
                                                n);
    }
    return launched(call);
}

// ---- the table ------------------------------------------------------------------------------------------------------

static const tn_sample each_samples[] = {{"s=[1000]"}, {"s=[4, 33]"}, {"s=[0, 3]"}, {"s=[]"}, {nullptr}};
static const tn_sample sum_samples[] = {{"n=100000"}, {"n=7"}, {nullptr}};
static const tn_sample row_samples[] = {{"r=[64] c=1000"}, {"r=[5] c=33"}, {nullptr}};

#define OPERATOR(name_, signature_, doc_, run_, ref_, samples_, ...)                                \
    static const tn_kernel name_##_kernels[] = {                                                    \
        {.name = "cuda", .device = TN_CUDA, .types = TN_BIT(TN_F32) | TN_BIT(TN_F64), .run = run_}, \
        {.name = "ref", .device = TN_CPU, .run = ref_},                                             \
        {nullptr}};                                                                                 \
    static const tn_op name_ = {.signature = #name_ signature_,                                     \
                                .doc = doc_,                                                        \
                                __VA_ARGS__ __VA_OPT__(, ).kernels = name_##_kernels,               \
                                .samples = samples_};

#define EACH "<T: f32 f64>(x: T[*s]) -> y: T[*s]"
#define SUM "<T: f32 f64>(x: T[n]) -> y: T[]"

OPERATOR(mistake_none, EACH, "2 x.", run_right, ref_twice, each_samples)
OPERATOR(mistake_write_past, EACH, "2 x.", run_write_past, ref_twice, each_samples)
OPERATOR(mistake_read_past, EACH, "2 x.", run_read_past, ref_twice, each_samples)
OPERATOR(mistake_far_away, EACH, "2 x.", run_far_away, ref_twice, each_samples)
OPERATOR(mistake_index_32, EACH, "2 x.", run_index_32, ref_twice, each_samples)
OPERATOR(mistake_vectors, EACH, "2 x.", run_vectors, ref_twice, each_samples)
OPERATOR(mistake_tail, EACH, "2 x.", run_tail, ref_twice, each_samples)
OPERATOR(mistake_stream, EACH, "2 x.", run_stream, ref_twice, each_samples)
OPERATOR(mistake_drops_nan, EACH, "max(x, 0).", run_drops_nan, ref_relu, each_samples)
OPERATOR(mistake_unwritten, EACH, "max(x, 0).", run_unwritten, ref_relu, each_samples)
OPERATOR(mistake_race, SUM, "The sum of x.", run_race, ref_sum, sum_samples)
OPERATOR(mistake_shared, "<T: f32 f64>(x: T[*r, c]) -> y: T[*r]", "The sum of each row.", run_shared_tail, ref_sum,
         row_samples)
OPERATOR(mistake_gradient, EACH, "x * x.", run_square, ref_square, each_samples,
         .grad = "x: mistake_gradient_dx(x, dy)")
OPERATOR(mistake_gradient_dx, "<T: f32 f64>(x: T[*s], dy: T[*s]) -> dx: T[*s]", "x * dy.", run_square_grad,
         ref_square_grad, each_samples)

static const tn_kernel barrier_kernels[] = {{.name = "cuda",
                                             .device = TN_CUDA,
                                             .types = TN_BIT(TN_F32) | TN_BIT(TN_F64),
                                             .accepts = short_rows,
                                             .run = run_no_barrier},
                                            {.name = "ref", .device = TN_CPU, .run = ref_backwards},
                                            {nullptr}};
static const tn_op mistake_barrier = {.signature = "mistake_barrier<T: f32 f64>(x: T[*r, c]) -> y: T[*r, c]",
                                      .doc = "Every row backwards.",
                                      .kernels = barrier_kernels,
                                      .samples = row_samples};

static const tn_op *const table[] = {&mistake_none,      &mistake_write_past,  &mistake_read_past, &mistake_far_away,
                                     &mistake_index_32,  &mistake_vectors,     &mistake_tail,      &mistake_stream,
                                     &mistake_drops_nan, &mistake_unwritten,   &mistake_race,      &mistake_shared,
                                     &mistake_gradient,  &mistake_gradient_dx, &mistake_barrier};
TN_API const tn_plugin tenon_plugin = TN_PLUGIN(table);
