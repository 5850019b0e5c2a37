/* SPDX-License-Identifier: Apache-2.0 */
/* Which reported flows get rules, one report after the other, for `testbed.measurements.canary.rules`. */

enum { NOT_NEEDED, ADMITTED, REFUSED };

/* Flows at places, of which `n` are in use, and an index of them by flow and place. A slot has a row
 * + 1, or 0; there are more slots than rows, and a power of 2. */
typedef struct {
    uint64_t *hi;   /* [rows] upper 40 bits of the flow ID */
    uint64_t *lo;   /* [rows] lower 64 */
    int32_t *place; /* [rows] */
    int64_t n_slots;
    int32_t *slots; /* [n_slots] */
} FlowsAt;

/* What the fabric and the switches' tables allow. */
typedef struct {
    const int32_t *upstream;   /* [segments] */
    const int32_t *downstream; /* [segments] */
    int64_t *wanted;           /* [segments] flows that are still asked for */
    int64_t *load;             /* [2, switches] entries of the DSM's and the USM's tables */
    const int64_t *room;       /* [2] the most of each */
    int64_t n_switches;
} Demand;

/* Return the slot of a flow at a place, or the one to put it into. */
static int32_t *slot_of(const FlowsAt *flows, uint64_t hi, uint64_t lo, int32_t place) {
    uint64_t at = scramble(scramble(hi ^ (uint64_t)(uint32_t)place << 40) ^ lo);
    for (;; at++) {
        int32_t *slot = flows->slots + (at & (uint64_t)(flows->n_slots - 1));
        int64_t row = (int64_t)*slot - 1;
        if (row < 0 || (flows->lo[row] == lo && flows->hi[row] == hi && flows->place[row] == place))
            return slot;
    }
}

/* Put a flow into a slot and the row behind the last. */
static void append(FlowsAt *flows, int32_t *slot, int64_t row, uint64_t hi, uint64_t lo,
                   int32_t place) {
    flows->hi[row] = hi, flows->lo[row] = lo, flows->place[row] = place;
    *slot = (int32_t)row + 1;
}

/* Make the index of n flows anew. */
KERNEL void index_flows(FlowsAt *flows, int64_t n) {
    memset(flows->slots, 0, (size_t)flows->n_slots * sizeof *flows->slots);
    for (int64_t row = 0; row < n; row++)
        *slot_of(flows, flows->hi[row], flows->lo[row], flows->place[row]) = (int32_t)row + 1;
}

/* Say of each reported flow what becomes of it. Rules are flows on segments, entries of the USM are
 * flows at upstream switches, and rules of a flow there share one; `rows` has the number of both, and
 * they have room for n more. A new rule gets its `entry`, which it `shares`. */
KERNEL void admit(int64_t n, const uint64_t hi[n], const uint64_t lo[n], const int32_t segment[n],
                  int8_t outcome[n], const Demand *demand, FlowsAt *rules, FlowsAt *entries,
                  int64_t n_rules, int64_t entry[n_rules], int64_t n_entries,
                  int64_t shares[n_entries], int64_t rows[2]) {
    for (int64_t i = 0; i < n; i++) {
        int32_t s = segment[i], up = demand->upstream[s];
        int64_t *dsm_load = demand->load + demand->downstream[s];
        int64_t *usm_load = demand->load + demand->n_switches + up;
        outcome[i] = NOT_NEEDED;
        if (demand->wanted[s] <= 0) continue;
        int32_t *rule = slot_of(rules, hi[i], lo[i], s);
        if (*rule) continue;
        int32_t *shared = slot_of(entries, hi[i], lo[i], up);
        if (*dsm_load >= demand->room[0] || (!*shared && *usm_load >= demand->room[1])) {
            outcome[i] = REFUSED;
            continue;
        }
        if (!*shared) {
            ++*usm_load;
            shares[rows[1]] = 0;
            append(entries, shared, rows[1]++, hi[i], lo[i], up);
        }
        ++*dsm_load;
        demand->wanted[s]--;
        entry[rows[0]] = *shared - 1;
        shares[*shared - 1]++;
        append(rules, rule, rows[0]++, hi[i], lo[i], s);
        outcome[i] = ADMITTED;
    }
}
