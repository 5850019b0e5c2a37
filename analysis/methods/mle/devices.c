/* SPDX-License-Identifier: Apache-2.0 */
/* Failed devices: the blame of all links of a switch at once, and the release of those that are
 * more likely healthy; see devices.py. */
#include "moves.h"

/* Return the cost in nats of naming m faulty ones of the n links of a failed device, of which half
 * are assumed to have no healthy link: ln 2, and ln n + ln C(n, m) if some are healthy. */
KERNEL double device_share(int64_t n, int64_t m) {
    if (m == n)
        return log(2.0);
    double links = (double)n, faulty = (double)m;
    double choice = lgamma(links + 1.0) - lgamma(faulty + 1.0) - lgamma(links - faulty + 1.0);
    return log(2.0) + log(links) + choice;
}

/* Return by how many nats the evidence of unit i's rate is below its likelihood. */
static double rate_cost(int64_t i, const Problem *s) {
    double lost = fallen_on_all(i, s);
    if (s->blamed[i]) {
        double over = width(lost, s->arrived[i] * s->law[FAULT]);
        return larger(log(-log(s->law[FAULT]) / over), 0.0);
    }
    return settled(lost, s->size[i]);
}

/* Return by how many nats the evidence of the rates of the units `own` is below their
 * likelihood. */
KERNEL double rate_costs(int64_t n, const int32_t own[n], const Problem *s) {
    double total = 0.0;
    for (int64_t nth = 0; nth < n; nth++)
        total += rate_cost(own[nth], s);
    return total;
}

/* Shift loss from one side to the other until the lowest rates of the blamed units of both sides
 * are equal, if this costs next to nothing, as no path shows such a shift. Return the gain in
 * log-likelihood. */
static double balance(int64_t n, const int32_t *own, const int32_t *side, const Problem *s) {
    double one = INFINITY, other = INFINITY;
    for (int64_t nth = 0; nth < n; nth++) {
        if (s->blamed[own[nth]] && side[nth] > 0)
            one = smaller(one, s->x[own[nth]]);
        else if (s->blamed[own[nth]] && side[nth] < 0)
            other = smaller(other, s->x[own[nth]]);
    }
    if (one == INFINITY || other == INFINITY)
        return 0.0;
    keep(s);
    double gained = 0.0, step = 0.5 * (other - one);
    for (int64_t nth = 0; nth < n; nth++) {
        int64_t i = own[nth];
        if (s->blamed[i] && side[nth] != 0) {
            double new = s->x[i] + (double)side[nth] * step;
            gained += gain(i, new, s);
            move(i, new, s);
            touch(i, s);
        }
    }
    for (int64_t nth = 0; nth < n; nth++)
        gained += settle_around(own[nth], COARSE, s);
    if (gained > -1.0)
        return gained;
    restore(s);
    return 0.0;
}

/* Blame all of the units `own` that may be faulty, then release those that are more likely healthy
 * given the others. `side` is 1 or -1 for the links on the two sides of a device, or 0. Return the
 * gain in log-likelihood. */
KERNEL double fail_device(int64_t n, const int32_t own[n], const int32_t side[n],
                          const Problem *s) {
    double gained = 0.0;
    for (int64_t nth = 0; nth < n; nth++) {
        int64_t i = own[nth];
        bool unknown = s->arrived[i] * s->law[FAULT] < LENIENT;
        if (!s->blamed[i] && (s->candidate[i] || unknown))
            gained += blame(i, s);
    }
    gained += balance(n, own, side, s);
    for (int64_t round = 0; round < n; round++) {
        bool again = false;
        for (int64_t nth = 0; nth < n; nth++) {
            int64_t i = own[nth], faulty = 0;
            if (!s->blamed[i])
                continue;
            for (int64_t j = 0; j < n; j++)
                faulty += s->blamed[own[j]];
            double odds = device_share(n, faulty - 1) - device_share(n, faulty);
            double dear = rate_cost(i, s);
            keep(s);
            s->blamed[i] = false;
            double new = held(i, s);
            double cost = -gain(i, new, s) + healthy(i, new, s);
            move(i, new, s);
            touch(i, s);
            cost -= settle_around(i, COARSE, s);
            if (cost - dear + rate_cost(i, s) + odds < 0.0) {
                gained -= cost;
                again = true;
            } else {
                s->blamed[i] = true;
                restore(s);
                s->gains[i] = larger(cost, 0.0);
            }
        }
        if (!again)
            break;
    }
    return gained;
}

/* Release the blamed units outside the device that are not needed any more. */
KERNEL void release_around(int64_t n_units, const bool outside[n_units], const Problem *s) {
    for (int64_t i = 0; i < n_units; i++)
        if (outside[i] && s->blamed[i])
            release(i, true, s);
}
