/* SPDX-License-Identifier: Apache-2.0 */
/* The cost and the evidence of an explanation, and the mean of the law of healthy links; see
 * likelihood.py. */
#include "likelihood.h"

/* Return the sum of `law` over all units, in nats. */
KERNEL double cost(const Problem *s) {
    double total = 0.0;
    for (int64_t i = 0; i < s->n_units; i++)
        total += law(i, s);
    return total;
}

/* Return the mean rate of a healthy link, from `lowest` to widest times a fault's least.
 *
 * A healthy rate is below that of a fault, so the law is cut off there; with a mean of half this
 * limit or more it would be nearly flat. If s_i of the losses fell to a healthy link over which A_i
 * packets arrived, its mean is (s_i + 1) / (A_i + 1 / mean). `kept` and `share` are scratch. */
KERNEL double mean_rate(const Problem *s, double lowest, double widest) {
    double fault = s->law[FAULT], mean = smaller(s->law[MEAN], widest * fault);
    double *rate = s->kept, *fallen = s->share, links = 0.0;
    for (int64_t i = 0; i < s->n_units; i++) {
        rate[i] = s->blamed[i] ? s->x[i] : larger(s->x[i], mean * s->size[i]);
        if (!s->blamed[i])
            links += s->size[i];
    }
    if (links == 0.0)
        return lowest;
    for (int round = 0; round < 300; round++) {
        memset(fallen, 0, (size_t)s->n_units * sizeof *fallen);
        for (int64_t r = 0; r < s->n_rows; r++) {
            double total = 0.0;
            for (int64_t e = s->ptr[r]; e < s->ptr[r + 1]; e++)
                total += rate[s->units[e]];
            double each = s->lost[r] / total;
            for (int64_t e = s->ptr[r]; e < s->ptr[r + 1]; e++)
                fallen[s->units[e]] += each * rate[s->units[e]];
        }
        double before = mean, total = 0.0;
        for (int64_t i = 0; i < s->n_units; i++) {
            if (s->blamed[i])
                continue;
            double after = (fallen[i] + s->size[i]) / (s->arrived[i] + 1.0 / mean);
            rate[i] = smaller(after, fault * s->size[i]);
            total += rate[i];
        }
        mean = larger(lowest, smaller(total / links, widest * fault));
        if (fabs(mean - before) < 1e-3 * before)
            break;
    }
    memset(fallen, 0, (size_t)s->n_units * sizeof *fallen);
    return mean;
}

/* Return the evidence by which laws are compared: the log-likelihood of the rows with the rates of
 * healthy units integrated over their law (Laplace), less the penalties, in nats. */
KERNEL double evidence(const Problem *s) {
    double mean = s->law[MEAN], fault = s->law[FAULT], *fallen = s->share, total = 0.0;
    memset(fallen, 0, (size_t)s->n_units * sizeof *fallen);
    for (int64_t r = 0; r < s->n_rows; r++) {
        total += s->lost[r] * log(-expm1(-s->total[r]));
        for (int64_t e = s->ptr[r]; e < s->ptr[r + 1]; e++)
            fallen[s->units[e]] += fallen_on(r, s->units[e], s);
    }
    for (int64_t i = 0; i < s->n_units; i++) {
        total -= s->arrived[i] * s->x[i];
        if (s->blamed[i]) {
            total -= s->law[PENALTY];
            continue;
        }
        total -= healthy(i, s->x[i], s) + settled(fallen[i], s->size[i]);
        total -= log(-expm1(-fault / mean));
    }
    memset(fallen, 0, (size_t)s->n_units * sizeof *fallen);
    return total;
}
