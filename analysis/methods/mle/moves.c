/* SPDX-License-Identifier: Apache-2.0 */
/* The search that blames the unit that gains most, refits, releases and swaps, and the other
 * explanations that are tried; see moves.py. */
#include "moves.h"

static const double FINE = 1e-5; /* nats that a move must gain at the end */

/* Compute the sums of the rows from the rates, and settle all rates. */
KERNEL void begin(const Problem *s) {
    for (int64_t r = 0; r < s->n_rows; r++) {
        s->total[r] = 0.0;
        for (int64_t e = s->ptr[r]; e < s->ptr[r + 1]; e++)
            s->total[r] += s->x[s->units[e]];
    }
    settle_every(COARSE, s);
}

/* Set all units to their most likely rates, to within 0.001 nats; return the gain in nats. */
KERNEL double settle_all(const Problem *s) {
    return settle_every(COARSE, s);
}

/* Return the unit whose blame gains most with all other rates fixed; -1 if none gains the penalty.
 *
 * Gains mostly fall as other units are blamed, so a gain that is out of date is computed again only
 * when it is the highest; before -1 is returned, all are. */
static int64_t strongest(const Problem *s) {
    for (;;) {
        int64_t pick = -1;
        double highest = s->law[PENALTY];
        for (int64_t i = 0; i < s->n_units; i++) {
            if (s->candidate[i] && !s->blamed[i] && s->gains[i] > highest) {
                pick = i;
                highest = s->gains[i];
            }
        }
        if (pick >= 0 && s->current[pick])
            return pick;
        if (pick >= 0) {
            update_gain(pick, s);
            continue;
        }
        bool all_fresh = true;
        for (int64_t i = 0; i < s->n_units; i++) {
            if (s->candidate[i] && !s->blamed[i] && !s->current[i]) {
                update_gain(i, s);
                if (s->gains[i] > s->law[PENALTY])
                    all_fresh = false;
            }
        }
        if (all_fresh)
            return -1;
    }
}

/* Blame a unit that gains the penalty once its neighbours are refitted; return whether there is
 * one.
 *
 * Healthy neighbours explain a part of a fault's losses, so with their rates fixed a unit may gain
 * too little. */
static bool blame_after_refit(const Problem *s) {
    int tried = 0;
    for (int64_t i = 0; i < s->n_units && tried < 50; i++) {
        if (s->candidate[i] && !s->blamed[i] && s->gains[i] > 0.4 * s->law[PENALTY]) {
            tried++;
            keep(s);
            if (blame(i, s) > s->law[PENALTY])
                return true;
            s->blamed[i] = false;
            restore(s);
        }
    }
    return false;
}

/* Blame and release units until neither gains. */
KERNEL void search(const Problem *s) {
    int64_t changes = 0;
    int64_t limit = 100 + 10 * s->n_units; /* rounding must not make it go round in circles */
    for (;;) {
        int64_t pick = strongest(s);
        if (pick >= 0) {
            blame(pick, s);
            continue;
        }
        if (changes < limit && blame_after_refit(s)) {
            changes++;
            continue;
        }
        bool released = false;
        for (int64_t i = 0; i < s->n_units; i++) {
            if (s->blamed[i] && release(i, changes < limit, s)) {
                changes++;
                released = true;
            }
        }
        if (!released)
            return;
    }
}

/* Settle all rates finely, and compute the gain of each unit that is not blamed. */
KERNEL void finish(const Problem *s) {
    settle_every(FINE, s);
    for (int64_t i = 0; i < s->n_units; i++)
        if (!s->blamed[i])
            s->gains[i] = s->candidate[i] ? larger(expected_gain(i, s), 0.0) : 0.0;
}

/* Write the share of each blamed unit's losses that are on the rows `on` to `share`. */
KERNEL void shares_on(int64_t n_rows, const bool on[n_rows], int64_t n_units, double share[n_units],
                      const Problem *s) {
    for (int64_t i = 0; i < n_units; i++) {
        if (!s->blamed[i])
            continue;
        double whole = 0.0, some = 0.0;
        for (int64_t e = s->unit_ptr[i]; e < s->unit_ptr[i + 1]; e++) {
            int64_t r = s->rows[e];
            whole += fallen_on(r, i, s);
            if (on[r])
                some += fallen_on(r, i, s);
        }
        if (whole > 0.0)
            share[i] = some / whole;
    }
}

/* Count for each candidate that is not blamed how many blamed units it may replace: those of whose
 * losses more than `shared` are on its rows. */
KERNEL void count_replaced(double shared, int64_t n_units, int32_t count[n_units],
                           const Problem *s) {
    for (int64_t i = 0; i < n_units; i++) {
        if (!s->blamed[i])
            continue;
        double whole = 0.0;
        for (int64_t e = s->unit_ptr[i]; e < s->unit_ptr[i + 1]; e++) {
            int64_t r = s->rows[e];
            whole += fallen_on(r, i, s);
            for (int64_t f = s->ptr[r]; f < s->ptr[r + 1]; f++)
                s->share[s->units[f]] += fallen_on(r, i, s);
        }
        for (int64_t e = s->unit_ptr[i]; e < s->unit_ptr[i + 1]; e++) {
            int64_t r = s->rows[e];
            for (int64_t f = s->ptr[r]; f < s->ptr[r + 1]; f++) {
                int64_t j = s->units[f];
                if (s->candidate[j] && !s->blamed[j] && s->share[j] > shared * whole)
                    count[j]++;
                s->share[j] = 0.0;
            }
        }
    }
}

/* Release unit i: its rate becomes the mean of healthy links. */
KERNEL void acquit(int64_t i, const Problem *s) {
    s->blamed[i] = false;
    move(i, s->law[MEAN] * s->size[i], s);
    touch(i, s);
}

/* Blame unit i at the mean rate of the `others`, which are released; at a rate of 1 without any. */
KERNEL void stand_in(int64_t i, int64_t n, const int32_t others[n], const Problem *s) {
    double rate = n ? 0.0 : 1.0;
    for (int64_t nth = 0; nth < n; nth++) {
        rate += s->x[others[nth]] / (double)n;
        acquit(others[nth], s);
    }
    s->blamed[i] = true;
    move(i, rate, s);
    touch(i, s);
}
