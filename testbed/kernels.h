/* SPDX-License-Identifier: Apache-2.0 */
/* What every file of kernels begins with: `testbed.kernels` puts this text before it.
 *
 * A kernel is a C function marked KERNEL. Its prototype is all that Python knows of it: the names,
 * types and shapes of its arguments. An array argument is written with its shape, as in
 *
 *     KERNEL double total(int64_t n_paths, const int64_t ptr[n_paths + 1], double x[n_paths]);
 *
 * and `n_paths` is then taken from the arrays. What is not marked const is written to. A kernel
 * allocates nothing: what it works in is an argument, too.
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define KERNEL __attribute__((visibility("default")))
/* Functions of a header, which not every file that includes it calls. */
#define HELPER static inline __attribute__((unused))
#define SHARED static __attribute__((unused))

/* A numpy.random.Generator: its bit generator, and NumPy's own functions that draw from it, so that
 * a kernel draws the very numbers that Python would (numpy/random/bitgen.h, distributions.h). */
typedef struct {
    void *state;
    uint64_t (*next_uint64)(void *state);
    uint32_t (*next_uint32)(void *state);
    double (*next_double)(void *state);
    uint64_t (*next_raw)(void *state);
} BitGenerator;

typedef struct {
    BitGenerator *bits;
    int64_t (*poisson_of)(BitGenerator *bits, double mean);
    int64_t (*binomial_of)(BitGenerator *bits, double p, int64_t n, void *prepared);
} Random;

/* Return a number uniform over [0, 1). */
HELPER double uniform(const Random *random) {
    return random->bits->next_double(random->bits->state);
}

HELPER int64_t poisson(const Random *random, double mean) {
    return random->poisson_of(random->bits, mean);
}

/* What NumPy keeps between two draws from a binomial distribution (binomial_t); zeros at first. */
typedef struct {
    double words[32];
} Binomial;

/* Return how many of n packets meet something of probability p. */
HELPER int64_t binomial(const Random *random, int64_t n, double p, Binomial *prepared) {
    return random->binomial_of(random->bits, p, n, prepared);
}

HELPER int64_t least(int64_t a, int64_t b) {
    return b < a ? b : a;
}

HELPER int64_t most(int64_t a, int64_t b) {
    return b > a ? b : a;
}

/* Return x within [low, high], as min(max(x, low), high) does in Python. */
HELPER double clipped(double x, double low, double high) {
    x = low > x ? low : x;
    return high < x ? high : x;
}

/* Return an unsigned 64-bit number mixed (splitmix64): sums of them tell multisets apart. */
HELPER uint64_t scramble(uint64_t x) {
    x = (x + 0x9E3779B97F4A7C15u) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* The first and one past the last of n elements of which part `part` of `parts` takes care. */
HELPER int64_t part_begin(int64_t n, int64_t part, int64_t parts) {
    return n * part / parts;
}

HELPER int64_t part_end(int64_t n, int64_t part, int64_t parts) {
    return n * (part + 1) / parts;
}
