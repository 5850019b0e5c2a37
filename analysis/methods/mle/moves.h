/* SPDX-License-Identifier: Apache-2.0 */
/* The moves of the search: blame a unit, release it or swap it for another, and refit only the
 * units that share a row with the changed one; see moves.py. */
#include "likelihood.h"

/* A unit may be blamed if a rate below the least of a fault is more likely by up to this many nats,
 * since the fault's true rate may be just above. */
static const double LENIENT = 2.0;
static const double COARSE = 1e-3; /* nats that a move must gain */

/* Set all units to their most likely rates, see `settle`; return the gain in nats. */
static double settle_every(double tolerance, const Problem *s) {
    int64_t count = 0;
    for (int64_t i = 0; i < s->n_units; i++) {
        s->current[i] = false;
        if (s->unit_ptr[i] < s->unit_ptr[i + 1]) {
            s->queue[count++] = (int32_t)i;
            s->queued[i] = true;
        } else if (!s->blamed[i]) {
            s->x[i] = held(i, s);
        }
    }
    return settle(0, count, tolerance, s);
}

/* Settle unit i and the units that share a row with it; return the gain in nats. */
static double settle_around(int64_t i, double tolerance, const Problem *s) {
    int64_t count = 1;
    s->queue[0] = (int32_t)i;
    s->queued[i] = true;
    for (int64_t e = s->unit_ptr[i]; e < s->unit_ptr[i + 1]; e++) {
        int64_t r = s->rows[e];
        for (int64_t f = s->ptr[r]; f < s->ptr[r + 1]; f++) {
            int32_t j = s->units[f];
            s->current[j] = false;
            if (!s->queued[j]) {
                s->queued[j] = true;
                s->queue[count++] = j;
            }
        }
    }
    return settle(0, count, tolerance, s);
}

/* Return by how many nats the best rate below that of a fault is more likely than the least rate of
 * a fault. */
static double shortfall(int64_t i, const Problem *s) {
    double low = best(i, 0.0, 0.0, LEAST_RATE * s->law[MEAN], s->law[FAULT], s);
    return gain(i, low, s) - gain(i, s->law[FAULT], s);
}

/* Return the gain in nats, without the penalty, of blaming unit i, all other rates fixed. */
static double expected_gain(int64_t i, const Problem *s) {
    double new = best(i, 0.0, 0.0, s->law[FAULT], DEAD, s);
    double gained = gain(i, new, s) + law(i, s);
    if (new <= s->law[FAULT] && shortfall(i, s) > LENIENT)
        return smaller(gained, 0.0);
    return gained;
}

/* Update the gain of unit i. */
static void update_gain(int64_t i, const Problem *s) {
    s->gains[i] = expected_gain(i, s);
    s->current[i] = true;
}

/* Blame unit i and refit its neighbours; return the gain in nats without the penalty. */
static double blame(int64_t i, const Problem *s) {
    double paid = law(i, s);
    s->blamed[i] = true;
    double new = best(i, 0.0, 0.0, s->law[FAULT], DEAD, s);
    double gained = gain(i, new, s) + paid;
    move(i, new, s);
    touch(i, s);
    return gained + settle_around(i, COARSE, s);
}

/* Copy the rates of all units to `kept`, from where `restore` reads them. */
static void keep(const Problem *s) {
    memcpy(s->kept, s->x, (size_t)s->n_units * sizeof *s->kept);
}

/* Set the rates to those that `keep` copied. */
static void restore(const Problem *s) {
    for (int64_t i = 0; i < s->n_units; i++) {
        if (s->x[i] != s->kept[i]) {
            move(i, s->kept[i], s);
            touch(i, s);
        }
    }
}

/* Return the largest share of unit i's losses that are on rows of one other candidate. */
static double shared_losses(int64_t i, const Problem *s) {
    double mine = 0.0, highest = 0.0;
    for (int64_t e = s->unit_ptr[i]; e < s->unit_ptr[i + 1]; e++) {
        int64_t r = s->rows[e];
        double fallen = fallen_on(r, i, s);
        mine += fallen;
        for (int64_t f = s->ptr[r]; f < s->ptr[r + 1]; f++) {
            int64_t j = s->units[f];
            if (j != i && s->candidate[j]) {
                s->share[j] += fallen;
                highest = larger(highest, s->share[j]);
            }
        }
    }
    for (int64_t e = s->unit_ptr[i]; e < s->unit_ptr[i + 1]; e++) {
        int64_t r = s->rows[e];
        for (int64_t f = s->ptr[r]; f < s->ptr[r + 1]; f++)
            s->share[s->units[f]] = 0.0;
    }
    return mine > 0.0 ? highest / mine : 1.0;
}

/* Return the other unit on a row of unit i whose blame now gains most; -1 if none gains. */
static int64_t rival(int64_t i, const Problem *s) {
    int64_t pick = -1;
    double highest = 0.0;
    for (int64_t e = s->unit_ptr[i]; e < s->unit_ptr[i + 1]; e++) {
        int64_t r = s->rows[e];
        for (int64_t f = s->ptr[r]; f < s->ptr[r + 1]; f++) {
            int64_t j = s->units[f];
            if (j == i || s->blamed[j] || !s->candidate[j])
                continue;
            if (!s->current[j])
                update_gain(j, s);
            if (s->gains[j] > highest) {
                pick = j;
                highest = s->gains[j];
            }
        }
    }
    return pick;
}

/* Release blamed unit i if it does not gain its penalty any more, or blame another unit in its
 * place that explains its losses better. Return whether either was done; otherwise the explanation
 * is unchanged, and its gain is the cost of the release in nats. */
static bool release(int64_t i, bool may_change, const Problem *s) {
    double penalty = s->law[PENALTY];
    bool below = s->x[i] <= s->law[FAULT] && shortfall(i, s) > LENIENT;
    keep(s);
    s->blamed[i] = false;
    double new = held(i, s);
    double cost = -gain(i, new, s) + healthy(i, new, s);
    if (cost > 10.0 * penalty && !below && shared_losses(i, s) < 0.5) {
        s->blamed[i] = true;
        s->gains[i] = cost;
        return false;
    }
    move(i, new, s);
    touch(i, s);
    cost -= settle_around(i, COARSE, s);
    if ((cost < penalty || below) && may_change)
        return true;
    int64_t other = rival(i, s);
    if (other >= 0 && s->gains[other] > cost - 1.0) {
        /* Of equal explanations rounding prefers now one, now the other: of 10^10 packets by tenths
         * of a nat. So a swap must gain more than that. */
        if (blame(other, s) > cost + 2 * COARSE + 1e-9 * fabs(cost) && may_change)
            return true;
        s->blamed[other] = false;
    }
    s->blamed[i] = true;
    restore(s);
    s->gains[i] = cost;
    return false;
}
