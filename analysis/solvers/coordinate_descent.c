/* SPDX-License-Identifier: Apache-2.0 */
/* NetBouncer's descents (its section 5 and appendix B), for `analysis.solvers.coordinate_descent`,
 * whose docstring has the formulas. */
#include "incidence.h"

/* `Fit` in Python: the state of a descent. */
typedef struct {
    const double *y;
    const double *times;
    double *x;
    double square;
    double linear;
} Fit;

/* Set each link of a part to its packet-weighted mean path success (appendix B, line 1). */
KERNEL void start(int64_t part, int64_t parts, const Incidence *incidence, Fit *fit,
                  int64_t n_paths, const double weight[n_paths]) {
    int64_t n = incidence->n_links, end = part_end(n, part, parts);
    for (int64_t i = part_begin(n, part, parts); i < end; i++) {
        double packets = 0, good = 0;
        for (int64_t e = incidence->link_ptr[i]; e < incidence->link_ptr[i + 1]; e++) {
            int32_t j = incidence->paths[e];
            if (fit->times[j] > 0) {
                packets += weight[j];
                good += weight[j] * fit->y[j];
            }
        }
        if (packets > 0) fit->x[i] = clipped(good / packets, 0, 1);
    }
}

/* Return the sum of w_j (y_j - prod x)^2 over the paths of a part. */
KERNEL double error(int64_t part, int64_t parts, const Incidence *incidence, const Fit *fit) {
    int64_t n = incidence->n_paths, end = part_end(n, part, parts);
    double total = 0;
    for (int64_t j = part_begin(n, part, parts); j < end; j++) {
        double product = 1;
        for (int64_t e = incidence->path_ptr[j]; e < incidence->path_ptr[j + 1]; e++)
            product *= fit->x[incidence->links[e]];
        total += fit->times[j] * ((fit->y[j] - product) * (fit->y[j] - product));
    }
    return total;
}

/* Return the sum of lambda r(x) over all links. */
KERNEL double penalty(const Incidence *incidence, const Fit *fit) {
    double total = 0;
    for (int64_t i = 0; i < incidence->n_links; i++)
        total += fit->square * fit->x[i] * fit->x[i] + fit->linear * fit->x[i];
    return total;
}

/* Move each link of this part of `order` once (algorithm 1, lines 5 to 17). */
KERNEL void step(int64_t part, int64_t parts, int64_t n, const int32_t order[n],
                 const Incidence *incidence, Fit *fit) {
    const int32_t *links = incidence->links;
    int64_t end = part_end(n, part, parts);
    for (int64_t o = part_begin(n, part, parts); o < end; o++) {
        int32_t i = order[o];
        double squares = 0, towards = 0;
        bool measured = false;
        for (int64_t e = incidence->link_ptr[i]; e < incidence->link_ptr[i + 1]; e++) {
            int32_t j = incidence->paths[e];
            double times = fit->times[j], others = 1; /* c_j */
            if (!(times > 0)) continue;
            for (int64_t k = incidence->path_ptr[j]; k < incidence->path_ptr[j + 1]; k++)
                if (links[k] != i) others *= fit->x[links[k]];
            measured = true;
            squares += times * (others * others);
            towards += times * (fit->y[j] * others);
        }
        if (!measured) continue;
        double r = 2 * (squares + fit->square), s = 2 * towards - fit->linear;
        if (r == 0)
            fit->x[i] = s > 0;
        else if (r > 0)
            fit->x[i] = clipped(s / r, 0, 1);
        else
            fit->x[i] = !(s / r > 0.5);
    }
}

/* Iterate in one part: write the objective before the first and after each iteration, and stop as
 * `_ends` says in Python, or when `history` is full. Return how many were written. `before` is the
 * last objective of an earlier call, which is not written again, or infinite. */
KERNEL int64_t descend(int64_t n_order, const int32_t order[n_order], const Incidence *incidence,
                       Fit *fit, double before, double tolerance, bool limited, int64_t n,
                       double history[n]) {
    int64_t done = 0;
    bool again = isfinite(before);
    while (true) {
        if (again) step(0, 1, n_order, order, incidence, fit);
        double now = error(0, 1, incidence, fit) + penalty(incidence, fit);
        double gain = before - now;
        history[done++] = before = now;
        if (done == n || gain < tolerance || (!limited && gain <= 0)) return done;
        again = true;
    }
}

static double regularised(double x, double log_growth) {
    return clipped(0.5 + (x - 0.5) * exp(log_growth), 0, 1);
}

/* Run one round of stochastic gradient descent over the paths in the given order (section 6.4);
 * `penalty` is lambda / P. `updated`, zeros, is the step of each link's last update. */
KERNEL void descend_round(const Incidence *incidence, const double *y, int64_t n_links,
                          double x[n_links], int64_t n, const int64_t order[n], double rate,
                          double penalty, int64_t updated[n_links]) {
    const int32_t *links = incidence->links;
    double growth = log1p(2 * rate * penalty);
    for (int64_t step = 0; step < n; step++) {
        int64_t j = order[step], begin = incidence->path_ptr[j], end = incidence->path_ptr[j + 1];
        double product = 1, before = 1;
        for (int64_t e = begin; e < end; e++) {
            int32_t i = links[e];
            x[i] = regularised(x[i], growth * (step - updated[i]));
            updated[i] = step;
            product *= x[i];
        }
        double error = 2 * rate * (y[j] - product);
        for (int64_t e = begin; e < end; e++) { /* a link at 0 has a gradient, too: no division */
            double others = before;
            for (int64_t o = e + 1; o < end; o++) others *= x[links[o]];
            before *= x[links[e]];
            x[links[e]] = clipped(x[links[e]] + error * others, 0, 1);
        }
    }
    for (int64_t i = 0; i < n_links; i++) /* the rest of the regulariser's steps */
        x[i] = regularised(x[i], growth * (n - updated[i]));
}
