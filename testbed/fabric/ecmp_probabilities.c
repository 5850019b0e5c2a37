/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over the equal-cost paths of a Clos, hop by hop, for `testbed.fabric.ecmp_probabilities`. */

enum { FAR = 255 }; /* the number of hops that marks a ToR without a path */

/* The upward links that begin (`up`) or end (`under`) at each switch; `_Links` in Python. */
typedef struct {
    const int64_t *ptr;
    const int32_t *link;
    const int32_t *other;
} Links;

typedef struct {
    Links up;
    Links under;
} Fabric;

/* The shortest ways from each switch to each ToR, [n_tors, n_switches] each; `_Ways` in Python. */
typedef struct {
    int64_t n_tors;
    int64_t n_switches;
    uint8_t *hops;
    uint8_t *down_hops;
    float *routes;
    float *descents;
    int32_t *only;
} Ways;

/* The rows of `Ways` of one ToR. */
typedef struct {
    uint8_t *hops, *down_hops;
    float *routes, *descents;
    int32_t *only;
} ToTor;

static ToTor ways_to(const Ways *ways, int64_t tor) {
    int64_t row = tor * ways->n_switches;
    return (ToTor){ways->hops + row, ways->down_hops + row, ways->routes + row,
                   ways->descents + row, ways->only + row};
}

/* ---- ways to every ToR ------------------------------------------------------------------- */

/* Count the descents to a ToR from the switches above it; `rising` has all, ascending in tier. */
static void count_descents(const Links *up, int64_t n, const int32_t *rising, ToTor to) {
    for (int64_t i = 0; i < n; i++) {
        int32_t x = rising[i];
        if (to.down_hops[x] == FAR) continue;
        for (int64_t e = up->ptr[x]; e < up->ptr[x + 1]; e++) {
            int32_t y = up->other[up->link[e]];
            if (to.down_hops[x] + 1 < to.down_hops[y]) {
                to.down_hops[y] = to.down_hops[x] + 1;
                to.descents[y] = to.descents[x];
            } else if (to.down_hops[x] + 1 == to.down_hops[y]) {
                to.descents[y] += to.descents[x];
            }
        }
    }
}

/* Count the shortest paths from a switch whose upper neighbours are done: it descends, or climbs. */
static void count_routes(const Links *up, int32_t x, ToTor to) {
    to.hops[x] = to.down_hops[x];
    to.routes[x] = to.descents[x];
    for (int64_t e = up->ptr[x]; e < up->ptr[x + 1]; e++) {
        int32_t y = up->other[up->link[e]];
        if (to.hops[y] == FAR) continue;
        if (to.hops[y] + 1 < to.hops[x]) {
            to.hops[x] = to.hops[y] + 1;
            to.routes[x] = to.routes[y];
        } else if (to.hops[y] + 1 == to.hops[x]) {
            to.routes[x] += to.routes[y];
        }
    }
}

/* Fill `ways`, whose hops are FAR, whose `only` is -1 and whose other arrays are 0. */
KERNEL void fill_ways(int64_t n, const int32_t rising[n], const Fabric *fabric, Ways *ways) {
    const Links *under = &fabric->under;
    for (int64_t t = 0; t < ways->n_tors; t++) {
        ToTor to = ways_to(ways, t);
        to.down_hops[t] = 0;
        to.descents[t] = 1;
        count_descents(&fabric->up, n, rising, to);
        for (int64_t i = n - 1; i >= 0; i--) {
            int32_t x = rising[i];
            count_routes(&fabric->up, x, to);
            int several = 0;
            for (int64_t e = under->ptr[x]; e < under->ptr[x + 1]; e++)
                if (to.down_hops[under->other[under->link[e]]] + 1 == to.down_hops[x])
                    to.only[x] = ++several == 1 ? under->link[e] : -1;
        }
    }
}

/* ---- the paths from a switch on ---------------------------------------------------------- */

/* What `forward` works in: `mass` is zeros, before and after. It leaves the links that it met in
 * `on`, and what crosses each in `on_mass`, for each link at most once. */
typedef struct {
    double *mass;    /* [2, n_switches], climbing and falling */
    int32_t *queues; /* [2, n_switches] */
    int32_t *on;     /* [n_links] */
    double *on_mass; /* [n_links] */
} Spread;

/* Spread `amount` from a switch over the paths to ToR t; return how many links it met. */
static int64_t forward(int64_t start, bool descending, double amount, int64_t t,
                       const Fabric *fabric, const Ways *ways, const Spread *spread) {
    const Links *up = &fabric->up, *under = &fabric->under;
    ToTor to = ways_to(ways, t);
    double *mass_up = spread->mass, *mass_down = spread->mass + ways->n_switches;
    int32_t *climbing = spread->queues, *falling = spread->queues + ways->n_switches;
    int64_t a = 0, b = 0, a_end = 0, b_end = 0, count = 0;
    if (descending)
        falling[b_end++] = (int32_t)start, mass_down[start] = amount;
    else
        climbing[a_end++] = (int32_t)start, mass_up[start] = amount;
    while (a < a_end || b < b_end) {
        for (int64_t stop = a_end; a < stop; a++) {
            int32_t x = climbing[a];
            double share = mass_up[x] / to.routes[x];
            mass_up[x] = 0;
            if (to.hops[x] == to.down_hops[x]) {
                if (mass_down[x] == 0) falling[b_end++] = x;
                mass_down[x] += share * to.descents[x];
            }
            for (int64_t e = up->ptr[x]; e < up->ptr[x + 1]; e++) {
                int32_t y = up->other[up->link[e]];
                if (to.hops[y] + 1 != to.hops[x]) continue;
                if (mass_up[y] == 0) climbing[a_end++] = y;
                mass_up[y] += share * to.routes[y];
                spread->on[count] = up->link[e];
                spread->on_mass[count++] = share * to.routes[y];
            }
        }
        for (int64_t stop = b_end; b < stop; b++) {
            int32_t x = falling[b], only = to.only[x];
            double share = mass_down[x] / to.descents[x];
            mass_down[x] = 0;
            int64_t first = only >= 0 ? 0 : under->ptr[x], last = only >= 0 ? 1 : under->ptr[x + 1];
            for (int64_t e = first; e < last; e++) {
                int32_t link = only >= 0 ? only : under->link[e], y = under->other[link];
                if (to.down_hops[y] + 1 != to.down_hops[x]) continue;
                if (mass_down[y] == 0) falling[b_end++] = y;
                mass_down[y] += share * to.descents[y];
                spread->on[count] = link ^ 1;
                spread->on_mass[count++] = share * to.descents[y];
            }
        }
    }
    return count;
}

/* Append to `links` and `chance` the possible links from each state (switch, descending, ToR) on,
 * as CSR, beginning with state `begin`. Return the first state for which there was no room. */
KERNEL int64_t go_on(int64_t begin, int64_t n_states, const int32_t states[n_states][3],
                     const Fabric *fabric, const Ways *ways, const Spread *spread,
                     int64_t ptr[n_states + 1], int64_t room, int32_t links[room],
                     double chance[room]) {
    for (int64_t i = begin; i < n_states; i++) {
        const int32_t *state = states[i];
        int64_t count = forward(state[0], state[1] == 1, 1, state[2], fabric, ways, spread);
        if (ptr[i] + count > room) return i;
        memcpy(links + ptr[i], spread->on, count * sizeof *links);
        memcpy(chance + ptr[i], spread->on_mass, count * sizeof *chance);
        ptr[i + 1] = ptr[i] + count;
    }
    return n_states;
}

/* Write the links and chances of each connection: those traced (chance 1), then the others. */
KERNEL void join(int64_t n, const int64_t ptr[n + 1], const int64_t n_traced[n],
                 const int64_t traced_ptr[n + 1], const int32_t *traced_links,
                 const int64_t begin[n], const int32_t *links, const double *chance,
                 int32_t *all_links, double *all_chance) {
    for (int64_t i = 0; i < n; i++) {
        int64_t at = ptr[i];
        for (int64_t e = 0; e < n_traced[i]; e++, at++) {
            all_links[at] = traced_links[traced_ptr[i] + e];
            all_chance[at] = 1;
        }
        for (int64_t e = begin[i]; at < ptr[i + 1]; e++, at++) {
            all_links[at] = links[e];
            all_chance[at] = chance[e];
        }
    }
}

/* Add to `used` the expected connections over each link, for one between any two ToRs. `mass`, [2,
 * n_switches], is scratch memory. */
KERNEL void usage(int64_t n, const int32_t rising[n], const Fabric *fabric, const Ways *ways,
                  double mass[2][n], double *used) {
    const Links *up = &fabric->up, *under = &fabric->under;
    double *mass_up = mass[0], *mass_down = mass[1];
    for (int64_t t = 0; t < ways->n_tors; t++) {
        ToTor to = ways_to(ways, t);
        for (int64_t x = 0; x < n; x++) mass_up[x] = x < ways->n_tors && x != t, mass_down[x] = 0;
        for (int64_t i = 0; i < n; i++) {
            int32_t x = rising[i];
            if (mass_up[x] == 0 || to.hops[x] == FAR) continue;
            double share = mass_up[x] / to.routes[x];
            if (to.hops[x] == to.down_hops[x]) mass_down[x] += share * to.descents[x];
            for (int64_t e = up->ptr[x]; e < up->ptr[x + 1]; e++) {
                int32_t y = up->other[up->link[e]];
                if (to.hops[y] + 1 != to.hops[x]) continue;
                mass_up[y] += share * to.routes[y];
                used[up->link[e]] += share * to.routes[y];
            }
        }
        for (int64_t i = n - 1; i >= 0; i--) {
            int32_t x = rising[i];
            if (mass_down[x] == 0) continue;
            double share = mass_down[x] / to.descents[x];
            for (int64_t e = under->ptr[x]; e < under->ptr[x + 1]; e++) {
                int32_t y = under->other[under->link[e]];
                if (to.down_hops[y] + 1 != to.down_hops[x]) continue;
                mass_down[y] += share * to.descents[y];
                used[under->link[e] ^ 1] += share * to.descents[y];
            }
        }
    }
}

/* ---- the connections over a link --------------------------------------------------------- */

/* What `add_shared` works in. */
typedef struct {
    double *by_switch; /* [4, n_switches], zeros between two calls */
    int32_t *queues;   /* [2, n_switches] */
    Spread spread;
} Room;

/* Queues of a walk back from a switch, and the number of switches in each. */
typedef struct {
    int32_t *climbing, *falling;
    int64_t a_end, b_end;
    double *ways_up, *ways_down;
} Back;

/* Count back the ways to the queued switches, hop by hop, on shortest paths to one ToR. */
static void walk_back(const Fabric *fabric, ToTor to, const int32_t *src, const int32_t *dst,
                      Back *back) {
    const Links *up = &fabric->up, *under = &fabric->under;
    int64_t a = 0, b = 0;
    while (a < back->a_end || b < back->b_end) {
        for (int64_t stop = back->b_end; b < stop; b++) {
            int32_t x = back->falling[b];
            if (to.hops[x] == to.down_hops[x]) {
                if (back->ways_up[x] == 0) back->climbing[back->a_end++] = x;
                back->ways_up[x] += back->ways_down[x];
            }
            for (int64_t e = up->ptr[x]; e < up->ptr[x + 1]; e++) {
                int32_t z = dst[up->link[e]];
                if (to.down_hops[z] != to.down_hops[x] + 1) continue;
                if (back->ways_down[z] == 0) back->falling[back->b_end++] = z;
                back->ways_down[z] += back->ways_down[x];
            }
        }
        for (int64_t stop = back->a_end; a < stop; a++) {
            int32_t x = back->climbing[a];
            for (int64_t e = under->ptr[x]; e < under->ptr[x + 1]; e++) {
                int32_t z = src[under->link[e]];
                if (to.hops[z] != to.hops[x] + 1) continue;
                if (back->ways_up[z] == 0) back->climbing[back->a_end++] = z;
                back->ways_up[z] += back->ways_up[x];
            }
        }
    }
}

/* Long: one sum, with a case for each relative position of the two links. */
/* Add to `votes` those that connections over `link` are expected to cast (007, section 5.1).
 *
 * A path over the link u->v is a way from its source to u and one from v to its ToR. Ways are
 * counted back from u; `weight` sums, over the sources whose ways meet in a switch, a path's vote
 * times its probability. */
static void add_shared(int64_t link, const int32_t *src, const int32_t *dst, const Fabric *fabric,
                       const Ways *ways, const Room *room, double *votes) {
    const Links *up = &fabric->up, *under = &fabric->under;
    int64_t n = ways->n_switches;
    int32_t u = src[link], v = dst[link];
    bool climbs = link % 2 == 0;
    double *weight_up = room->by_switch + 2 * n, *weight_down = room->by_switch + 3 * n;
    for (int64_t t = 0; t < ways->n_tors; t++) {
        ToTor to = ways_to(ways, t);
        uint8_t *near = climbs ? to.hops : to.down_hops;
        if (near[v] == FAR || near[v] + 1 != near[u]) continue;
        Back back = {room->queues, room->queues + n, 0, 0, room->by_switch, room->by_switch + n};
        if (climbs)
            back.climbing[back.a_end++] = u, back.ways_up[u] = 1;
        else
            back.falling[back.b_end++] = u, back.ways_down[u] = 1;
        double onward = climbs ? to.routes[v] : to.descents[v];
        walk_back(fabric, to, src, dst, &back);
        for (int64_t i = back.a_end - 1; i >= 0; i--) {
            int32_t x = back.climbing[i];
            if (x < ways->n_tors && x != t) weight_up[x] = 1.0 / (to.hops[x] * to.routes[x]);
            for (int64_t e = under->ptr[x]; e < under->ptr[x + 1]; e++) {
                int32_t z = src[under->link[e]];
                if (to.hops[z] != to.hops[x] + 1) continue;
                weight_up[x] += weight_up[z];
                votes[under->link[e]] += weight_up[z] * back.ways_up[x] * onward;
            }
        }
        for (int64_t i = back.b_end - 1; i >= 0; i--) {
            int32_t x = back.falling[i];
            if (to.hops[x] == to.down_hops[x]) weight_down[x] = weight_up[x];
            for (int64_t e = up->ptr[x]; e < up->ptr[x + 1]; e++) {
                int32_t z = dst[up->link[e]];
                if (to.down_hops[z] != to.down_hops[x] + 1) continue;
                weight_down[x] += weight_down[z];
                votes[up->link[e] ^ 1] += weight_down[z] * back.ways_down[x] * onward;
            }
        }
        double cast = (climbs ? weight_up[u] : weight_down[u]) * onward;
        votes[link] += cast;
        int64_t count = forward(v, !climbs, cast, t, fabric, ways, &room->spread);
        for (int64_t i = 0; i < count; i++) votes[room->spread.on[i]] += room->spread.on_mass[i];
        for (int64_t i = 0; i < back.a_end; i++)
            back.ways_up[back.climbing[i]] = weight_up[back.climbing[i]] = 0;
        for (int64_t i = 0; i < back.b_end; i++)
            back.ways_down[back.falling[i]] = weight_down[back.falling[i]] = 0;
    }
}

/* Append to `shared` and `share` the links that share votes with each of `links`, as CSR, from
 * links[begin] on, and their votes per vote for it. `votes` is zeros, before and after. Return the
 * first link for which there was no room. */
KERNEL int64_t share_votes(int64_t begin, int64_t n, const int64_t links[n], int64_t n_links,
                           const int32_t src[n_links], const int32_t dst[n_links],
                           const Fabric *fabric, const Ways *ways, const Room *working,
                           double votes[n_links], int64_t ptr[n + 1], int64_t room,
                           int32_t shared[room], double share[room]) {
    for (int64_t i = begin; i < n; i++) {
        int64_t link = links[i], count = 0;
        add_shared(link, src, dst, fabric, ways, working, votes);
        double own = votes[link] > 0 ? votes[link] : 1.0;
        votes[link] = own;
        for (int64_t other = 0; other < n_links; other++) count += votes[other] != 0;
        bool fits = ptr[i] + count <= room;
        int64_t at = ptr[i];
        for (int64_t other = 0; other < n_links; other++) {
            if (votes[other] == 0) continue;
            if (fits) shared[at] = (int32_t)other, share[at++] = votes[other] / own;
            votes[other] = 0;
        }
        if (!fits) return i;
        ptr[i + 1] = at;
    }
    return n;
}
