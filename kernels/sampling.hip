// Token selection on the device: the best token, or the k best tokens with their probabilities.
//
// Several workgroups share a row (grid: x = parts, y = row). Each stores the best of its part in
// scratch memory; the last one to finish selects among those. The result does not depend on which
// workgroup is last.
#include "rf/host_memory.h"
#include "rf/params/sampling.h"
#include "rf/rank.h"
#include "rf/share.h"

using namespace rf;

constexpr u32 ARGMAX_THREADS = 256;
constexpr u32 TOP_K_THREADS = 1024;

namespace {

constexpr u32 MAX_K = 256;

// Keys per thread of top_k_f32.
constexpr u32 HELD = 16;

// The number of workgroups that arrived before the calling one, returned to every thread.
RF_DEVICE u32 arrival(u32 *counter) {
    RF_SHARED static u32 before;
    publish();
    barrier();
    if (thread_x() == 0) before = arrive(counter);
    barrier();
    return before;
}

// Keys among which the best are chosen by comparing all pairs, and how many more than k threads may
// reach the bound that chooses them.
constexpr u32 MAX_LISTED = 512, MORE_THREADS = 64;

struct TopKShared {
    u32 counts[2][TOP_K_THREADS / WAVE];
    u32 listed;
    u64 list[MAX_LISTED];
    u64 keys[MAX_K];
};

// The sum over the workgroup. Calls alternate between two `turn`s, so that one barrier suffices.
RF_DEVICE u32 workgroup_sum(u32 count, u32 turn, TopKShared &shared) {
    count = wave_sum(count);
    if (lane() == 0) shared.counts[turn][wave()] = count;
    barrier();
    return wave_sum(shared.counts[turn][lane()]);
}

// The largest bound that at least k keys reach, found bit by bit, or a smaller one that at most
// k + more keys reach. count_of(bound) is the number of a thread's keys that reach a bound.
template <typename Count>
RF_DEVICE u64 bound_of(u32 k, u32 more, TopKShared &shared, Count count_of) {
    u64 bound = 0;
    for (u32 bit = 64; bit-- > 0;) {
        u64 higher = bound | 1ull << bit;
        u32 count = workgroup_sum(count_of(higher), bit % 2, shared);
        if (count >= k) bound = higher;
        if (count >= k && count <= k + more) break;
    }
    return bound;
}

// Lists the keys from a bound on. Returns their number, of which MAX_LISTED are listed.
RF_DEVICE u32 list_keys(const u64 (&keys)[HELD], u32 per_thread, u64 bound, TopKShared &shared) {
    if (thread_x() == 0) shared.listed = 0;
    barrier();
#pragma unroll
    for (u32 i = 0; i < HELD; i++) {
        if (i < per_thread && keys[i] >= bound) {
            u32 place = count_up(&shared.listed);
            if (place < MAX_LISTED) shared.list[place] = keys[i];
        }
    }
    barrier();
    return shared.listed;
}

// Stores the min(k, number) best of the workgroup's keys in shared.keys, best first, followed by
// NO_KEY or worse keys. A bound that the best keys of k threads reach is reached by the k best keys
// of all. The place of a key is the number of better ones. (Loops over `keys` are unrolled because
// registers cannot be indexed.)
RF_DEVICE void choose_best(const u64 (&keys)[HELD], u32 per_thread, u32 number, u32 k, TopKShared &shared) {
    u64 bound = NO_KEY + 1;
    if (number > k + MORE_THREADS) {
        u64 own = NO_KEY;
#pragma unroll
        for (u32 i = 0; i < HELD; i++) {
            if (i < per_thread) own = better(own, keys[i]);
        }
        bound = bound_of(k, MORE_THREADS, shared, [&](u64 higher) { return (u32)(own >= higher); });
    }
    u32 listed = list_keys(keys, per_thread, bound, shared);
    if (listed > MAX_LISTED) {
        // A few threads hold many of the best keys. All keys are unique, so exactly k reach the
        // largest bound.
        bound = bound_of(k, 0, shared, [&](u64 higher) {
            u32 count = 0;
#pragma unroll
            for (u32 i = 0; i < HELD; i++) {
                if (i < per_thread) count += keys[i] >= higher;
            }
            return count;
        });
        listed = list_keys(keys, per_thread, bound, shared);
    }
    u32 mine = thread_x();
    if (mine < MAX_K && mine >= listed) shared.keys[mine] = NO_KEY;
    if (mine < listed) {
        u64 key = shared.list[mine];
        u32 place = 0;
#pragma unroll 8
        for (u32 i = 0; i < listed; i++) place += shared.list[i] > key;
        if (place < MAX_K) shared.keys[place] = key;
    }
    barrier();
}

} // namespace

// Reads the logits once. A lane reads every (256 · parts)-th logit, with four loads in flight.
RF_KERNEL(ARGMAX_THREADS) argmax_f32(RfArgmaxParams p) {
    follow_previous_kernels();
    RF_SHARED static u64 wave_keys[ARGMAX_THREADS / WAVE];
    constexpr u32 WAVES = ARGMAX_THREADS / WAVE, TOGETHER = 4;
    u32 part = group_x(), row = group_y(), stride = p.parts * ARGMAX_THREADS;
    const float *logits = p.logits + (u64)row * p.vocab_size;
    u64 *scratch = p.scratch + (u64)row * p.parts;

    u64 best = NO_KEY;
    for (u32 first = part * ARGMAX_THREADS + thread_x(); first < p.vocab_size; first += stride * TOGETHER) {
        u32 index[TOGETHER];
        float logit[TOGETHER];
        for (u32 i = 0; i < TOGETHER; i++) {
            // The last logit may be read more than once.
            index[i] = first + i * stride < p.vocab_size ? first + i * stride : p.vocab_size - 1;
            logit[i] = logits[index[i]];
        }
        for (u32 i = 0; i < TOGETHER; i++) best = better(best, key_of(logit[i], index[i]));
    }

    best = wave_best(best);
    if (lane() == 0) wave_keys[wave()] = best;
    barrier();
    best = wave_best(lane() < WAVES ? wave_keys[lane()] : NO_KEY);
    if (thread_x() == 0) scratch[part] = best;
    if (arrival(&p.counters[row]) != p.parts - 1) return;

    if (wave() != 0) return;
    best = NO_KEY;
    for (u32 i = lane(); i < p.parts; i += WAVE) best = better(best, read_published(&scratch[i]));
    best = wave_best(best);
    if (lane() == 0) {
        p.ids[row] = index_of(best);
        p.values[row] = logit_of(best);
        p.counters[row] = 0;
        release_to_host();
        write_host(p.stamps + row, *p.stamp);
    }
}

// Reads the logits once; a workgroup holds a range of them in registers.
RF_KERNEL(TOP_K_THREADS) top_k_f32(RfTopKParams p) {
    follow_previous_kernels();
    RF_SHARED static TopKShared shared;
    u32 part = group_x(), row = group_y(), length = (p.vocab_size + p.parts - 1) / p.parts;
    const float *logits = p.logits + (u64)row * p.vocab_size;
    u64 *scratch = p.scratch + (u64)row * p.parts * p.k;

    u64 keys[HELD];
    u32 begin = part * length, end = begin + length < p.vocab_size ? begin + length : p.vocab_size;
#pragma unroll
    for (u32 i = 0; i < HELD; i++) {
        u32 index = begin + i * TOP_K_THREADS + thread_x();
        keys[i] = index < end ? key_of(logits[index], index) : NO_KEY;
    }
    u32 number = begin < end ? end - begin : 0;
    choose_best(keys, (number + TOP_K_THREADS - 1) / TOP_K_THREADS, number, p.k, shared);
    if (thread_x() < p.k) scratch[part * p.k + thread_x()] = shared.keys[thread_x()];
    if (arrival(&p.counters[row]) != p.parts - 1) return;

    u32 candidates = p.parts * p.k;
#pragma unroll
    for (u32 i = 0; i < HELD; i++) {
        u32 index = i * TOP_K_THREADS + thread_x();
        keys[i] = index < candidates ? read_published(&scratch[index]) : NO_KEY;
    }
    choose_best(keys, (candidates + TOP_K_THREADS - 1) / TOP_K_THREADS, candidates, p.k, shared);

    if (wave() != 0) return;
    float max = logit_of(shared.keys[0]), sum = 0.0f, weights[MAX_K / WAVE];
    for (u32 i = 0; i < MAX_K / WAVE; i++) {
        u32 place = i * WAVE + lane();
        weights[i] = place < p.k ? exp((logit_of(shared.keys[place]) - max) / p.temperature) : 0.0f;
        sum += weights[i];
    }
    sum = wave_sum(sum);
    for (u32 i = 0; i < MAX_K / WAVE; i++) {
        u32 place = i * WAVE + lane();
        if (place >= p.k) break;
        u64 at = (u64)row * p.k + place;
        p.ids[at] = index_of(shared.keys[place]);
        p.values[at] = logit_of(shared.keys[place]);
        p.probabilities[at] = weights[i] / sum;
    }
    // Every lane releases its results before the first one writes the stamp.
    release_to_host();
    wave_barrier();
    if (lane() == 0) {
        p.counters[row] = 0;
        write_host(p.stamps + row, *p.stamp);
    }
}
