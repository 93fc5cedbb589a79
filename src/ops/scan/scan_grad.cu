/* The gradients of cumprod: recurrences s[i] = add + times * s[i + 1], of which two in a row are one again. scan.h says
 * what is computed. A place in the order of the scan is counted from the end of the product for s, and from its
 * beginning for what arrives back; the host turns `reverse` round accordingly. */
#include "scan.cuh"

template <class A> struct affine { A times, add; };

template <class T> struct recurrence {
    typedef affine<acc<T>> state;
    typedef affine<acc<T>> raw;
    enum { VECTORS = false, LANE = TNI_SCAN_LANE, STRIPES = 1, SIDE = 1 };

    static TN_MEMBER state none() {
        return state{1, 0};
    }
    static TN_MEMBER state join(const tni_gpu_scan &, state a, state b) {
        return state{a.times == 0 ? (acc<T>)0 : b.times * a.times, a.add == 0 ? b.add : b.add + b.times * a.add};
    }
    static TN_MEMBER state state_of(const tni_gpu_scan &, raw a, i64) {
        return a;
    }
};

template <class T> TN_DEVICE acc<T> number_at(const void *x, i64 at) {
    return (acc<T>)widen(((const T *)x)[at]);
}

template <class T> TN_DEVICE void put(void *to, i64 at, acc<T> a) {
    if (to) narrow(a, ((T *)to)[at]);
}

/* How far the next element of the product is, where places are counted from its end. */
TN_DEVICE i64 next_of_product(const tni_gpu_scan &p) {
    return p.reverse ? p.inner : -p.inner;
}

/* p of scan.h, for the element at `at`; first: it is the first one of the product, next: where the next one is. */
template <class T> TN_DEVICE acc<T> product_before(const tni_gpu_scan &p, i64 at, i64 next, bool first) {
    return p.exclusive ? number_at<T>(p.y, at) : first ? (acc<T>)1 : number_at<T>(p.y, at - next);
}

/* s, from the end of the product on. */
template <class T> struct from_behind : recurrence<T> {
    typedef affine<acc<T>> state;

    static TN_MEMBER state read(const tni_gpu_scan &p, i64 at, i64 i) {
        const i64 next = next_of_product(p);
        const acc<T> times = i > 0 ? number_at<T>(p.x, at + next) : (acc<T>)0;
        const acc<T> arrives = !p.exclusive ? number_at<T>(p.dy, at)
                               : i > 0      ? number_at<T>(p.dy, at + next)
                                            : (acc<T>)0;
        return state{times, arrives};
    }
};

template <class T> struct first_gradient : from_behind<T> {
    typedef affine<acc<T>> state;

    static TN_MEMBER void write(const tni_gpu_scan &p, i64 at, i64 i, state, state upto) {
        put<T>(p.to, at, product_before<T>(p, at, next_of_product(p), i == p.n - 1) * upto.add);
    }
};

/* Writes down s, and gy, which is ddx[i] s[i] for the product before i. */
template <class T> struct second_gradient_behind : from_behind<T> {
    typedef affine<acc<T>> state;

    static TN_MEMBER void write(const tni_gpu_scan &p, i64 at, i64 i, state, state upto) {
        const acc<T> gy = number_at<T>(p.ddx, at) * upto.add;
        ((acc<T> *)p.s)[at] = upto.add;
        if (p.exclusive) {
            put<T>(p.gy, at, gy);
            return;
        }
        if (i < p.n - 1) put<T>(p.gy, at - next_of_product(p), gy);
        if (i == 0) put<T>(p.gy, at, 0); /* no product has the last one before it */
    }
};

/* a, from the beginning on: gx and gdy. */
template <class T> struct second_gradient : recurrence<T> {
    typedef affine<acc<T>> state;

    static TN_MEMBER state read(const tni_gpu_scan &p, i64 at, i64 i) {
        const i64 next = -next_of_product(p);
        const acc<T> arrives = number_at<T>(p.ddx, at) * product_before<T>(p, at, next, i == 0);
        return state{number_at<T>(p.x, at), arrives};
    }
    static TN_MEMBER void write(const tni_gpu_scan &p, i64 at, i64 i, state before, state upto) {
        put<T>(p.gx, at, i > 0 ? before.add * ((const acc<T> *)p.s)[at] : (acc<T>)0);
        put<T>(p.gdy, at, p.exclusive ? before.add : upto.add);
    }
};

#define GRADIENTS(T, type)                                           \
    SCAN(cumprod_grad, type, 2, 2, first_gradient<T>)                \
    SCAN(cumprod_grad_behind, type, 2, 2, second_gradient_behind<T>) \
    SCAN(cumprod_grad_grad, type, 2, 2, second_gradient<T>)

TN_FOR_TYPES(GRADIENTS)
