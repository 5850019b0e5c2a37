/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs of climbs that make a probe's path. */

/* `MeetingClimbs` in Python: climbs ptr[s] to ptr[s + 1] end at switch s. */
typedef struct {
    int64_t n_tors;
    int64_t n_switches;
    const int64_t *ptr;
    const int32_t *tor;
    const int32_t *length;
    int16_t *distance; /* [n_tors, n_tors] links of the shortest path */
} MeetingClimbs;

static int16_t *distance_of(const MeetingClimbs *climbs, int64_t i, int64_t j) {
    return climbs->distance + climbs->tor[i] * climbs->n_tors + climbs->tor[j];
}

/* Write the number of links of the shortest path of every two ToRs into `distance`. */
KERNEL void find_distances(MeetingClimbs *climbs) {
    for (int64_t s = 0; s < climbs->n_switches; s++)
        for (int64_t i = climbs->ptr[s]; i < climbs->ptr[s + 1]; i++)
            for (int64_t j = i + 1; j < climbs->ptr[s + 1]; j++) {
                int32_t total = climbs->length[i] + climbs->length[j];
                if (total < *distance_of(climbs, i, j))
                    *distance_of(climbs, i, j) = *distance_of(climbs, j, i) = (int16_t)total;
            }
}

/* Whether the climbs i and j, to the same switch, make a shortest path of two ToRs. */
static bool is_candidate(const MeetingClimbs *climbs, int64_t i, int64_t j) {
    int32_t total = climbs->length[i] + climbs->length[j];
    return climbs->tor[i] != climbs->tor[j] && *distance_of(climbs, i, j) == total;
}

/* Write the pairs of climbs of `mine` that make a candidate, longest first, as far as there is
 * room; return how many there are. */
KERNEL int64_t list_pairs(const MeetingClimbs *climbs, const bool *mine, int64_t longest,
                          int64_t room, int32_t first[room], int32_t second[room]) {
    int64_t n = 0;
    for (int64_t total = longest; total > 0; total--)
        for (int64_t s = 0; s < climbs->n_switches; s++)
            for (int64_t i = climbs->ptr[s]; i < climbs->ptr[s + 1]; i++) {
                if (!mine[i] || climbs->length[i] > total) continue;
                for (int64_t j = i + 1; j < climbs->ptr[s + 1]; j++) {
                    if (!mine[j] || climbs->length[i] + climbs->length[j] != total) continue;
                    if (!is_candidate(climbs, i, j)) continue;
                    if (n < room) first[n] = (int32_t)i, second[n] = (int32_t)j;
                    n++;
                }
            }
    return n;
}

/* Write a spanning forest of the climbs to each switch, breadth first; return its size. `order` is
 * scratch memory: the climbs to a switch, first those that were reached from others. */
KERNEL int64_t span(const MeetingClimbs *climbs, int64_t n_climbs, int32_t order[n_climbs],
                    int32_t first[n_climbs], int32_t second[n_climbs]) {
    int64_t n = 0;
    for (int64_t s = 0; s < climbs->n_switches; s++) {
        int64_t begin = climbs->ptr[s], stop = climbs->ptr[s + 1], reached = begin;
        for (int64_t i = begin; i < stop; i++) order[i] = (int32_t)i;
        for (int64_t at = begin; at < stop; at++) {
            if (reached == at) reached++; /* no candidate leads on from those before */
            for (int64_t k = reached; k < stop; k++) {
                if (!is_candidate(climbs, order[at], order[k])) continue;
                first[n] = order[at], second[n++] = order[k];
                int32_t next = order[k];
                order[k] = order[reached], order[reached++] = next;
            }
        }
    }
    return n;
}
