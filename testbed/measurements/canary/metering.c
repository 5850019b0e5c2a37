/* SPDX-License-Identifier: Apache-2.0 */
/* The selection of flows on every segment, epoch by epoch, for `testbed.measurements.canary.metering`. */

/* What flows a segment has: its arrivals an epoch, those under way at first, and flows to draw from
 * (rows of packets and packets an epoch), of which no other is ever selected. */
typedef struct {
    int64_t n_new;
    int64_t n_old;
    const double *new; /* [n_new, 2] */
    const double *old; /* [n_old, 2] */
} Pools;

/* The parameters of the selection (Canary, algorithm 1); the latency of rules is in epochs. */
typedef struct {
    double alpha;
    int64_t beta;
    int64_t delta;
    double eta;
    double latency;
} Selection;

/* The flows of one segment that are under way. */
typedef struct {
    double *left;  /* [room] packets */
    double *rate;  /* [room] packets an epoch */
    bool *chosen;  /* [room] */
    int64_t room;
} Flows;

/* The counts of one segment, as of `Metered`. */
typedef struct {
    int32_t flows, installed, removed, watched, reached;
} Counts;

/* Let one epoch go by on a segment whose packets pass with probability `passing`. `n` flows are
 * under way, `n_new` arrive, `wanted` may be selected. Return the packets that the meter counts. */
static double run_epoch(const Random *rng, const Pools *pools, const Selection *selection,
                        Flows *flows, int64_t *n, int64_t n_new, double passing, int64_t wanted,
                        int64_t *active, Counts *counts) {
    double packets = 0;
    int64_t kept = 0;
    *active = 0;
    for (int64_t f = 0; f < *n + n_new; f++) {
        double size, speed, time = 1;
        bool monitored = false;
        if (f < *n) {
            size = flows->left[f], speed = flows->rate[f], monitored = flows->chosen[f];
        } else {
            const double *drawn = pools->new + 2 * (int64_t)(uniform(rng) * pools->n_new);
            size = drawn[0], speed = drawn[1], time = uniform(rng);
        }
        double now = speed * time < size ? speed * time : size;
        double counted = monitored ? now : 0;
        if (!monitored && wanted > 0 && now * passing > selection->eta) {
            monitored = true;
            wanted--;
            counts->installed++;
            counted = now - selection->eta / passing - speed * selection->latency;
            if (counted < 0) counted = 0;
        }
        *active += counted > 0 && passing > 0;
        packets += counted;
        counts->watched += monitored;
        if (size - now >= 0.5 && kept < flows->room) {
            flows->left[kept] = size - now;
            flows->rate[kept] = speed;
            flows->chosen[kept++] = monitored;
        } else if (monitored) {
            counts->removed++;
        }
    }
    *n = kept;
    return packets;
}

/* Write the counts of the segments from `begin` to `end`; packets are real numbers until then,
 * times in epochs. `flows` has room for the flows of one segment. */
KERNEL void meter(const Random *rng, int64_t begin, int64_t end, const Pools *pools,
                  const Selection *selection, Flows *working, int64_t n_segments,
                  const double arrivals[n_segments], const double ongoing[n_segments],
                  int64_t n_rates, const double success[n_rates][n_segments], int64_t n_epochs,
                  int32_t sent[n_epochs][n_segments], int32_t flows[n_segments],
                  int32_t installed[n_segments], int32_t removed[n_segments],
                  int32_t watched[n_segments], int32_t reached[n_segments]) {
    for (int64_t s = begin; s < end; s++) {
        Counts counts = {0};
        int64_t n = least(poisson(rng, ongoing[s]), working->room);
        for (int64_t f = 0; f < n; f++) {
            const double *drawn = pools->old + 2 * (int64_t)(uniform(rng) * pools->n_old);
            working->left[f] = drawn[0], working->rate[f] = drawn[1], working->chosen[f] = false;
        }
        int64_t wanted = selection->delta, active;
        for (int64_t e = 0; e < n_epochs; e++) {
            double passing = success[least(e, n_rates - 1)][s];
            int64_t n_new = poisson(rng, arrivals[s]);
            double packets = run_epoch(rng, pools, selection, working, &n, n_new, passing, wanted,
                                       &active, &counts);
            bool enough = packets >= selection->alpha && active >= selection->beta;
            wanted = enough ? 0 : selection->delta;
            counts.reached += active >= selection->beta;
            if (active > counts.flows) counts.flows = (int32_t)active;
            sent[e][s] = (int32_t)(packets + 0.5);
        }
        flows[s] = counts.flows;
        installed[s] = counts.installed;
        removed[s] = counts.removed;
        watched[s] = counts.watched;
        reached[s] = counts.reached;
    }
}
