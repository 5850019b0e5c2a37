/* SPDX-License-Identifier: Apache-2.0 */
/* The second look at what was not blamed, once there are faults, and at what is doubtful; see
 * search.py. */
#include "moves.h"

/* A blamed unit that explains this many nats is certain: no cost of rate and choice is as high. */
static const double DOUBTLESS = 20.0;

/* The share of the search's price that a unit gains by its peak that may be likely enough. */
static const double HOPEFUL = 0.5;

/* Return x to the power n, by multiplication alone, so that it is the same on every machine. */
static double to_power(double x, int64_t n) {
    double power = 1.0;
    for (int64_t left = n < 0 ? -n : n; left; left >>= 1) {
        if (left & 1)
            power *= x;
        x *= x;
    }
    return n < 0 ? 1.0 / power : power;
}

/* Return the integral of L^-k from `low` to `high`, times low^(k - 1) to keep it small. */
static double power_integral(double low, double high, int64_t k) {
    if (k == 1)
        return log(high / low);
    return (1.0 - to_power(low / high, k - 1)) / (double)(k - 1);
}

/* Return the density, per ln x, of one more rate at `at`, given the `highest` of k rates so far.
 * These and `widest` are logarithms of rates over the least of a fault; see search.py. */
static double density(double at, double highest, int64_t k, double widest) {
    double low = larger(highest, 0.1), end = larger(low, at);
    if (end >= widest)
        return 1.0 / widest;
    double whole = power_integral(low, widest, k);
    return power_integral(end, widest, k + 1) / whole * to_power(low / end, k - 1) / end;
}

/* Return this density at the rate x, given the `top` rate of k so far. */
static double density_at(double x, int64_t k, double top, const Problem *s) {
    double fault = s->law[FAULT];
    return density(log(x / fault), log(top / fault), k, -log(fault));
}

/* Return the nats that a healthy unit's rate gains if its law is not cut off at the least rate of a
 * fault. */
static double beyond(int64_t i, const Problem *s) {
    double mean = s->law[MEAN], size = s->size[i];
    double x = best(i, size, 1.0 / mean, LEAST_RATE * mean * size, DEAD, s);
    if (x <= s->law[FAULT] * size)
        return 0.0;
    return gain(i, x, s) + healthy(i, s->x[i], s) - healthy(i, x, s);
}

/* Return by how many nats the evidence of unit i and of those that share a row with it, as far as
 * they are healthy, is below their likelihood. */
static double around(int64_t i, const Problem *s) {
    double total = s->blamed[i] ? 0.0 : settled(fallen_on_all(i, s), s->size[i]);
    s->share[i] = 1.0;
    for (int64_t e = s->unit_ptr[i]; e < s->unit_ptr[i + 1]; e++) {
        int64_t r = s->rows[e];
        for (int64_t f = s->ptr[r]; f < s->ptr[r + 1]; f++) {
            int64_t j = s->units[f];
            if (s->share[j] == 0.0 && !s->blamed[j]) {
                s->share[j] = 1.0;
                total += settled(fallen_on_all(j, s), s->size[j]);
            }
        }
    }
    s->share[i] = 0.0;
    for (int64_t e = s->unit_ptr[i]; e < s->unit_ptr[i + 1]; e++) {
        int64_t r = s->rows[e];
        for (int64_t f = s->ptr[r]; f < s->ptr[r + 1]; f++)
            s->share[s->units[f]] = 0.0;
    }
    return total;
}

/* Blame unit i beside the k blamed units, whose highest rate is `top`; return the factor by which
 * the evidence rises (the Bayes factor). */
static double blame_factor(int64_t i, int64_t k, double top, const Problem *s) {
    double before = around(i, s) - beyond(i, s);
    double gained = blame(i, s) + before;
    gained -= around(i, s);
    double over = width(fallen_on_all(i, s), s->arrived[i] * s->law[FAULT]);
    return exp(smaller(gained, 50.0)) * density_at(s->x[i], k, top, s) * over;
}

/* Return the same factor for a unit with few losses, with the rates of its neighbours fixed. */
static double unseen_factor(int64_t i, int64_t k, double top, const Problem *s) {
    double expected = s->arrived[i] * s->law[FAULT];
    if (s->candidate[i]) {
        double x = best(i, 0.0, 0.0, s->law[FAULT], DEAD, s), lost = 0.0;
        for (int64_t e = s->unit_ptr[i]; e < s->unit_ptr[i + 1]; e++) {
            int64_t r = s->rows[e];
            lost += s->lost[r] * smaller(x / (s->total[r] - s->x[i] + x), 1.0);
        }
        double over = width(lost, expected);
        double own = settled(fallen_on_all(i, s), s->size[i]) - beyond(i, s);
        return exp(s->gains[i] + own) * density_at(x, k, top, s) * over;
    }
    if (s->unit_ptr[i] < s->unit_ptr[i + 1])
        return 0.0; /* it clearly loses less than a fault does */
    double factor = exp(-expected) * width(0.0, expected) * density_at(s->law[FAULT], k, top, s);
    return smaller(factor, 1.0);
}

/* Return the probability of a fault, from the share of faulty units and the Bayes factor. */
static double probability(double share, double factor) {
    return share * factor / (1.0 - share + share * factor);
}

/* Blame further units whose Bayes factors show that they are probably faulty, the highest factor
 * first. `factor` is scratch for these factors, and `untried` marks the units to try; both are
 * modified. */
KERNEL void second_look(int64_t n_units, double factor[n_units], bool untried[n_units],
                        const Problem *s) {
    int64_t n = n_units, k = 0;
    double top = s->law[FAULT];
    for (int64_t i = 0; i < n; i++) {
        if (s->blamed[i]) {
            k++;
            top = larger(top, s->x[i]);
            untried[i] = false;
        }
    }
    for (int64_t i = 0; i < n; i++) {
        if (!untried[i])
            continue;
        if (s->candidate[i] && !s->current[i])
            s->gains[i] = expected_gain(i, s);
        untried[i] = s->candidate[i] && s->gains[i] > HOPEFUL * s->law[PENALTY];
        if (untried[i]) {
            keep(s);
            factor[i] = blame_factor(i, k, top, s);
            s->blamed[i] = false;
            restore(s);
        } else {
            factor[i] = unseen_factor(i, k, top, s);
        }
    }
    /* The share of faulty units and their expected number agree (Jeffreys' prior). */
    double share = ((double)k + 0.5) / ((double)n + 1.0), missed = 0.0;
    for (int round = 0; round < 100; round++) {
        missed = 0.0;
        for (int64_t i = 0; i < n; i++)
            missed += probability(share, factor[i]);
        double now = ((double)k + missed + 0.5) / ((double)n + 1.0);
        if (now - share < 1e-3 * share)
            break;
        share = now;
    }
    double sure = (double)k;
    for (;;) {
        int64_t pick = -1;
        for (int64_t i = 0; i < n; i++)
            if (untried[i] && (pick < 0 || factor[i] > factor[pick]))
                pick = i;
        if (pick < 0)
            return;
        untried[pick] = false;
        double expected = probability(share, factor[pick]);
        keep(s);
        double p = probability(share, blame_factor(pick, k, top, s));
        if (p > sure / ((double)k + sure + missed)) { /* half of the expected F1 */
            k++;
            sure += p;
            missed -= expected;
            top = larger(top, s->x[pick]);
        } else {
            s->blamed[pick] = false;
            restore(s);
        }
    }
}

/* Release blamed units that are more likely healthy than faulty, given that the others are faulty.
 * The search assumes the cost of a rate at few losses, which is too low at many. */
KERNEL void acquit_doubtful(const Problem *s) {
    int64_t n = s->n_units;
    for (int64_t i = 0; i < n; i++) {
        if (!s->blamed[i] || s->gains[i] > DOUBTLESS)
            continue;
        int64_t k = 0;
        double top = s->law[FAULT];
        for (int64_t j = 0; j < n; j++) {
            if (s->blamed[j] && j != i) {
                k++;
                top = larger(top, s->x[j]);
            }
        }
        s->blamed[i] = false;
        move(i, held(i, s), s);
        touch(i, s);
        settle_around(i, COARSE, s);
        keep(s);
        double share = ((double)k + 0.5) / ((double)n + 1.0);
        if (blame_factor(i, k, top, s) * share < 1.0 - share) {
            s->blamed[i] = false;
            restore(s);
        }
    }
}
