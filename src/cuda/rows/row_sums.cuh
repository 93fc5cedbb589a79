/* Sums over the threads that have a row together: pairs of numbers, in a fixed order. */
#pragma once

#include "exchange.cuh"

template <class A> struct two {
    A a, b;

    TN_MEMBER A &at(int i) {
        return i == 0 ? a : b;
    }
    static TN_MEMBER two none() {
        return {0, 0};
    }
};

template <class A> TN_DEVICE two<A> add_lanes(const two<A> &v, int lanes) {
    return {reduce_some_lanes<take_sum>(v.a, lanes), reduce_some_lanes<take_sum>(v.b, lanes)};
}

template <class A> TN_DEVICE two<A> join_warp(const two<A> &v) {
    return add_lanes(v, 32);
}

/* Some lanes of a warp. */
struct lane_sums {
    int lanes;

    template <class A> TN_MEMBER two<A> add(const two<A> &v) {
        return add_lanes(v, lanes);
    }
};

/* A block or a cluster of blocks, which have all begun. Exchanges take turns: what one leaves behind is read before the
 * next but one writes, because everybody has been at the barrier in between. */
template <class A> struct block_sums {
    exchange<A, 2> *shared; /* (2) */
    int blocks;
    u32 turn;

    TN_MEMBER two<A> add(two<A> v) {
        exchange<A, 2> &x = shared[turn++ % 2];
        v = join_block(v, x);
        return blocks == 1 ? v : join_cluster(v, x, blocks);
    }
};
