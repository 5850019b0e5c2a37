/* SPDX-License-Identifier: Apache-2.0 */
/* Match tables and action profiles: the packet side (lookup) and the control side.
 *
 * A row is [meta, priority or prefix length, packets, bytes, key words, mask words,
 * parameters]; a table of exact matches has no masks. meta: bits 0-31 action id (member or
 * group of an indirect table), bit 32 row in use, bit 33 the reference is a group. The row
 * number is the handle; like BMv2 the lowest free handle is given out first. No row lies on
 * two cache lines that fits into one. */

enum { SS_KEYLESS, SS_EXACT, SS_LPM, SS_TERNARY };
enum { SS_META, SS_PRIO, SS_PACKETS, SS_BYTES, SS_KEY };
#define SS_MOST_WORDS 64 /* of a key */
#define SS_USED (UINT64_C(1) << 32)
#define SS_GROUP (UINT64_C(1) << 33)

typedef struct {
    uint32_t kind, kw, mw, pw, rw, max_size; /* words: key, mask, parameters, row; entries */
    uint32_t metered, aged;          /* each row has a meter; the time of its last hit is kept */
    uint64_t exact;                  /* ternary: bits of the first key word that all match exactly */
    uint64_t default_meta;           /* 0: no default action */
    const uint64_t *default_params;
} ss_table_info;

typedef struct { /* what a lookup reads is in the first cache line */
    uint64_t *rows;     /* capacity * rw */
    union {
        uint32_t *slots;  /* exact, lpm: row + 1, 0 = empty; behind them is the filter */
        uint32_t *chains; /* ternary: first scan element + 1 of each value of exact bits; behind them
                           * that which follows each element */
    };
    union {
        uint64_t *groups; /* lpm: [prefix length, count, mask words], longest first */
        uint64_t *scan;   /* ternary: (value, mask) or (low, high) pairs in matching order */
    };
    union {
        uint32_t *nodes;    /* lpm: of the tree of prefixes, 256 entries each */
        uint32_t *scan_row; /* ternary: row of each scan element */
    };
    uint64_t base;      /* lpm: the bits that all keys below the root have in common */
    uint32_t count, slot_mask, groups_n;
    uint32_t single;    /* row + 1 of an entry for which nothing is hashed, or 0: exact: the only one;
                         * lpm: that which every key matches */
    uint32_t shift;     /* lpm: behind the root's 8 bits of a key; or SS_STALE, SS_NO_TREE */
    uint32_t plain;     /* ternary: no entry looks at more than the exact bits, and rows are chained */
    uint64_t exact;
    uint32_t kind, kw, mw, rw, pw, max_size, capacity, first_free, gone, nodes_n, nodes_cap;
    ss_meter *meters;   /* of each row, or NULL */
    uint64_t *seen;     /* time of each row's last hit in microseconds, or NULL */
    uint32_t metered, aged;
} __attribute__((aligned(64))) ss_table;

typedef struct {
    uint32_t pw, members_cap, groups_cap;
    uint64_t *members;  /* [meta, parameters] each */
    uint32_t **groups;  /* [n, sorted member ids...] each */
} ss_profile;

SS_INLINE uint64_t ss_hash_key(const uint64_t *k, uint32_t kw, uint64_t h) {
#pragma GCC unroll 8
    for (uint32_t i = 0; i < kw; i++) {
        h = (h ^ k[i]) * UINT64_C(0x9E3779B97F4A7C15);
        h ^= h >> 32;
    }
    return h;
}
#define SS_CHAINS 64
#define SS_CHAIN(bits) ((uint64_t)(bits) * UINT64_C(0x9E3779B97F4A7C15) >> 58)
SS_INLINE int ss_same(const uint64_t *a, const uint64_t *b, uint32_t kw) {
    uint64_t d = 0;
#pragma GCC unroll 8
    for (uint32_t i = 0; i < kw; i++) d |= a[i] ^ b[i];
    return !d;
}

/* Most lookups in large tables find nothing, and the slots lie far apart: of each key that was put
 * in, a bit is set in a filter of 16 bits a row, which stays in the cache. Fewer than SS_NEAR slots
 * stay there themselves. */
#define SS_NEAR 4096
SS_INLINE uint64_t *ss_filter(const ss_table *t, uint64_t hash) {
    return (uint64_t *)(t->slots + t->slot_mask + 1) + (hash >> 38 & t->slot_mask >> 4);
}
#define SS_FILTER_BIT(hash) (UINT64_C(1) << ((hash) >> 32 & 63))

/* The table has entries. kw and rw repeat its values as compile-time constants. */
SS_INLINE uint64_t *ss_find_hashed(const ss_table *t, const uint64_t *key, uint32_t kw,
                                   uint32_t rw, uint64_t seed) {
    uint64_t hash = ss_hash_key(key, kw, seed);
    uint32_t i = (uint32_t)hash, s;
    if (t->slot_mask >= SS_NEAR && !(*ss_filter(t, hash) & SS_FILTER_BIT(hash))) return NULL;
    for (; (s = t->slots[i & t->slot_mask]); i++) {
        uint64_t *row = t->rows + (size_t)(s - 1) * rw;
        if (row[SS_PRIO] == seed && ss_same(row + SS_KEY, key, kw)) return row;
    }
    return NULL;
}
SS_INLINE uint64_t *ss_find_exact(const ss_table *t, const uint64_t *key, uint32_t kw,
                                  uint32_t rw) {
    uint64_t *row;
    if (!t->single) return ss_find_hashed(t, key, kw, rw, 0);
    row = t->rows + (size_t)(t->single - 1) * rw;
    return ss_same(row + SS_KEY, key, kw) ? row : NULL;
}

/* Few prefixes of a key that is one field are looked up in a tree, 8 bits of the key at a step. An entry
 * of a node is the number of a row + 1, 0 for none, or SS_BELOW and where another node begins. */
#define SS_FEW_PREFIXES 256
#define SS_MOST_NODES 256
#define SS_BELOW (UINT32_C(1) << 31)
enum { SS_STALE = 64, SS_NO_TREE };

/* Add a node whose entries are all the same. Returns where it begins, SS_BELOW without memory. */
static uint32_t ss_node_new(ss_table *t, uint32_t entry) {
    if (t->nodes_n == SS_MOST_NODES) return SS_BELOW;
    if (t->nodes_n == t->nodes_cap) {
        uint32_t cap = t->nodes_cap ? 2 * t->nodes_cap : 1;
        uint32_t *nodes = realloc(t->nodes, (size_t)cap * 256 * sizeof *nodes);
        if (!nodes) return SS_BELOW;
        t->nodes = nodes;
        t->nodes_cap = cap;
    }
    uint32_t begin = 256 * t->nodes_n++;
    for (uint32_t i = 0; i < 256; i++) t->nodes[begin + i] = entry;
    return begin;
}
/* Put a row's prefix into the tree, in which there are none but shorter ones. */
static int ss_tree_put(ss_table *t, uint32_t number, uint32_t root) {
    const uint64_t *row = t->rows + (size_t)number * t->rw;
    const uint64_t key = row[SS_KEY], size = row[SS_KEY + 1] & -row[SS_KEY + 1];
    uint32_t begin = 0, shift = root;
    while (size < UINT64_C(1) << shift) {
        uint32_t at = begin + (key >> shift & 255), entry = t->nodes[at];
        if (!(entry & SS_BELOW)) {
            uint32_t below = ss_node_new(t, entry);
            if (below == SS_BELOW) return 0;
            entry = t->nodes[at] = SS_BELOW | below;
        }
        begin = entry & ~SS_BELOW;
        shift -= 8;
    }
    uint32_t first = begin + (key >> shift & 255);
    for (uint64_t i = 0; i < size >> shift; i++) t->nodes[first + i] = number + 1;
    return 1;
}
static __attribute__((noinline, cold)) void ss_tree_make(ss_table *t) {
    uint64_t apart = 255, base = 0;
    uint32_t root = 0, some = 0;
    t->shift = SS_NO_TREE;
    t->nodes_n = 0;
    if (t->count > SS_FEW_PREFIXES) return;
    for (uint32_t h = 0; h < t->capacity; h++) {
        const uint64_t *row = t->rows + (size_t)h * t->rw;
        if (!(row[SS_META] & SS_USED) || !row[SS_KEY + 1]) continue;
        if (!some++) base = row[SS_KEY];
        apart |= (row[SS_KEY] ^ base) | ((row[SS_KEY + 1] & -row[SS_KEY + 1]) - 1);
    }
    while (root < 56 && apart >> root >> 8) root += 8;
    if (ss_node_new(t, t->single) == SS_BELOW) return;
    for (uint32_t g = t->groups_n; g--;) { /* the shortest prefixes first */
        uint64_t length = t->groups[3 * (size_t)g];
        for (uint32_t h = 0; h < t->capacity; h++) {
            const uint64_t *row = t->rows + (size_t)h * t->rw;
            if (row[SS_META] & SS_USED && row[SS_KEY + 1] && row[SS_PRIO] == length &&
                !ss_tree_put(t, h, root))
                return;
        }
    }
    t->base = base;
    t->shift = root;
}

/* `alone`: the key is one field of at most 64 bits. */
SS_INLINE uint64_t *ss_find_lpm(ss_table *t, const uint64_t *key, uint32_t kw, uint32_t rw,
                                int alone) {
    if (alone) {
        if (__builtin_expect(t->shift == SS_STALE, 0)) ss_tree_make(t);
        uint32_t shift = t->shift, entry = t->single;
        if (shift != SS_NO_TREE) {
            if (!((key[0] ^ t->base) >> shift >> 8))
                entry = t->nodes[key[0] >> shift & 255];
            while (entry & SS_BELOW) {
                shift -= 8;
                entry = t->nodes[(entry & ~SS_BELOW) + (key[0] >> shift & 255)];
            }
            return entry ? t->rows + (size_t)(entry - 1) * rw : NULL;
        }
    }
    const uint64_t *g = t->groups, *end = g + (size_t)t->groups_n * (2 + kw);
    for (; g != end; g += 2 + kw) {
        uint64_t masked[SS_MOST_WORDS], *row; /* not kw: an array of unknown size costs a stack frame */
#pragma GCC unroll 8
        for (uint32_t i = 0; i < kw; i++) masked[i] = key[i] & g[2 + i];
        row = ss_find_hashed(t, masked, kw, rw, g[0]);
        if (row) return row;
    }
    return t->single ? t->rows + (size_t)(t->single - 1) * rw : NULL;
}
SS_INLINE uint32_t *ss_chain_next(const ss_table *t) { return t->chains + SS_CHAINS; }
/* ranges: bit i set when key word i is matched by range. `exact`: bits of the first key word that all
 * entries match exactly; entries are chained by them. */
SS_INLINE uint64_t *ss_find_ternary(const ss_table *t, const uint64_t *key, uint32_t kw,
                                    uint32_t rw, uint64_t ranges, uint64_t exact) {
    uint32_t next = exact ? t->chains[SS_CHAIN(key[0] & exact)] : 1;
    if (exact && !ranges && t->plain) { /* the rest of the key is not even made */
        for (; next; next = ss_chain_next(t)[next - 1]) {
            uint64_t *row = t->rows + (size_t)(next - 1) * rw;
            if (!((key[0] ^ row[SS_KEY]) & exact)) return row;
        }
        return NULL;
    }
    for (; exact ? next : next <= t->count; next = exact ? ss_chain_next(t)[next - 1] : next + 1) {
        const uint32_t n = next - 1;
        const uint64_t *s = t->scan + (size_t)n * 2 * kw;
        uint64_t miss = 0;
        for (uint32_t i = 0; i < kw; i++)
            miss |= ranges >> i & 1 ? (uint64_t)(key[i] < s[2 * i] || key[i] > s[2 * i + 1])
                                    : (key[i] & s[2 * i + 1]) ^ s[2 * i];
        if (!miss) return t->rows + (size_t)t->scan_row[n] * rw;
    }
    return NULL;
}

/* ---- control side ---- */
enum { SS_E_DUPLICATE = -1, SS_E_FULL = -2, SS_E_MEMORY = -3, SS_E_HANDLE = -4 };

static void *ss_grow(void *p, size_t n, size_t size) {
    size_t bytes = n * size;
    return realloc(p, bytes > 0 ? bytes : 1);
}

static void ss_table_init(ss_table *t, const ss_table_info *info) {
    memset(t, 0, sizeof *t);
    t->shift = SS_STALE;
    t->kind = info->kind;
    t->kw = info->kw;
    t->pw = info->pw;
    t->mw = info->mw;
    t->rw = info->rw;
    t->max_size = info->max_size;
    t->exact = info->exact;
    t->metered = info->metered;
    t->aged = info->aged;
}
static void ss_table_free(ss_table *t) {
    free(t->rows);
    free(t->slots); /* and what else the same pointers are */
    free(t->groups);
    free(t->nodes);
    free(t->meters);
    free(t->seen);
}
static uint64_t *ss_params(const ss_table *t, uint64_t *row) { return row + SS_KEY + t->kw + t->mw; }
static uint64_t *ss_row(const ss_table *t, uint64_t handle) {
    uint64_t *row;
    if (handle >= t->capacity) return NULL;
    row = t->rows + (size_t)handle * t->rw;
    return row[SS_META] & SS_USED ? row : NULL;
}
static void ss_slot_insert(ss_table *t, uint32_t number) {
    const uint64_t *row = t->rows + (size_t)number * t->rw;
    uint64_t hash = ss_hash_key(row + SS_KEY, t->kw, row[SS_PRIO]);
    uint32_t i = (uint32_t)hash;
    while (t->slots[i & t->slot_mask]) i++;
    t->slots[i & t->slot_mask] = number + 1;
    *ss_filter(t, hash) |= SS_FILTER_BIT(hash);
}
/* Bits of rows that are gone stay until there are many. */
static void ss_filter_again(ss_table *t) {
    memset(ss_filter(t, 0), 0, 8 * ((size_t)(t->slot_mask >> 4) + 1));
    for (uint32_t i = 0; i < t->capacity; i++) {
        const uint64_t *row = t->rows + (size_t)i * t->rw;
        uint64_t hash = ss_hash_key(row + SS_KEY, t->kw, row[SS_PRIO]);
        if (row[SS_META] & SS_USED) *ss_filter(t, hash) |= SS_FILTER_BIT(hash);
    }
    t->gone = 0;
}
static int ss_table_reserve(ss_table *t) {
    uint32_t cap = t->capacity ? 2 * t->capacity : 8;
    size_t old = 8 * (size_t)t->rw * t->capacity, size = 8 * (size_t)t->rw * cap;
    uint64_t *rows;
    if (t->count < t->capacity) return 1;
    if (t->metered) {
        ss_meter *meters = ss_grow(t->meters, cap, sizeof *meters);
        if (!meters) return 0;
        t->meters = meters;
    }
    if (t->aged) {
        uint64_t *seen = ss_grow(t->seen, cap, sizeof *seen);
        if (!seen) return 0;
        t->seen = seen;
    }
    if (!(rows = aligned_alloc(64, (size + 63) & ~(size_t)63))) return 0;
    if (old) memcpy(rows, t->rows, old);
    memset((uint8_t *)rows + old, 0, size - old);
    free(t->rows);
    t->rows = rows;
    if (t->kind == SS_TERNARY) {
        uint64_t *scan = ss_grow(t->scan, cap, 16 * (size_t)t->kw);
        uint32_t *number;
        if (scan) t->scan = scan;
        number = ss_grow(t->scan_row, cap, 4);
        if (number) t->scan_row = number;
        uint32_t *chains = calloc(SS_CHAINS + cap, 4);
        if (!scan || !number || !chains) {
            free(chains);
            return 0;
        }
        free(t->chains);
        t->chains = chains;
    } else {
        uint32_t *slots = calloc((size_t)cap * 4 + cap / 2, 4);
        if (!slots) return 0;
        free(t->slots);
        t->slots = slots;
        t->slot_mask = cap * 4 - 1;
        t->gone = 0;
        for (uint32_t i = 0; i < t->capacity; i++)
            if (t->rows[(size_t)i * t->rw] & SS_USED) ss_slot_insert(t, i);
    }
    t->capacity = cap;
    return 1;
}
/* the lpm group of a prefix length: its index, or where it belongs */
static uint32_t ss_group_place(const ss_table *t, uint64_t plen, int *found) {
    uint32_t i = 0, stride = 2 + t->kw;
    while (i < t->groups_n && t->groups[(size_t)i * stride] > plen) i++;
    *found = i < t->groups_n && t->groups[(size_t)i * stride] == plen;
    return i;
}
static int ss_group_add(ss_table *t, uint64_t plen, const uint64_t *mask) {
    int found;
    uint32_t i = ss_group_place(t, plen, &found), stride = 2 + t->kw;
    uint64_t *g;
    if (!found) {
        if (!(g = ss_grow(t->groups, t->groups_n + 1, 8 * (size_t)stride))) return 0;
        t->groups = g;
        g += (size_t)i * stride;
        memmove(g + stride, g, 8 * (size_t)stride * (t->groups_n - i));
        t->groups_n++;
        g[0] = plen;
        g[1] = 0;
        memcpy(g + 2, mask, 8 * (size_t)t->kw);
    }
    t->groups[(size_t)i * stride + 1]++;
    return 1;
}
static void ss_group_remove(ss_table *t, uint64_t plen) {
    int found;
    uint32_t i = ss_group_place(t, plen, &found), stride = 2 + t->kw;
    uint64_t *g = t->groups + (size_t)i * stride;
    if (found && !--g[1]) {
        t->groups_n--;
        memmove(g, g + stride, 8 * (size_t)stride * (t->groups_n - i));
    }
}
static int ss_matches_every(const ss_table *t, const uint64_t *mask) {
    uint64_t any = 0;
    for (uint32_t i = 0; i < t->kw; i++) any |= mask[i];
    return !any;
}
static int64_t ss_find_duplicate(const ss_table *t, const uint64_t *key, const uint64_t *mask,
                                 uint64_t prio) {
    if (t->kind == SS_TERNARY) {
        for (uint32_t i = 0; i < t->count; i++) {
            const uint64_t *row = t->rows + (size_t)t->scan_row[i] * t->rw;
            if (row[SS_PRIO] == prio && ss_same(row + SS_KEY, key, t->kw) &&
                ss_same(row + SS_KEY + t->kw, mask, t->kw))
                return t->scan_row[i];
        }
        return -1;
    }
    if (!t->count) return -1;
    uint64_t *row = ss_find_hashed(t, key, t->kw, t->rw, prio);
    return row ? (row - t->rows) / t->rw : -1;
}
/* Chain the first n scan elements anew, or their rows. */
static void ss_chain(ss_table *t, uint32_t n) {
    memset(t->chains, 0, 4 * SS_CHAINS);
    t->plain = 1;
    for (uint32_t i = 0; i < n * t->kw; i++)
        t->plain &= t->scan[2 * (size_t)i + 1] == (i % t->kw ? 0 : t->exact);
    while (n--) {
        uint32_t *first = t->chains + SS_CHAIN(t->scan[(size_t)n * 2 * t->kw] & t->exact);
        uint32_t number = t->plain ? t->scan_row[n] : n;
        ss_chain_next(t)[number] = *first;
        *first = number + 1;
    }
}
static void ss_scan_insert(ss_table *t, uint32_t number) {
    const uint64_t *row = t->rows + (size_t)number * t->rw;
    uint32_t i = 0, n = t->count, stride = 2 * t->kw;
    uint64_t *s;
    while (i < n) { /* equal priorities: lower handle first, as in BMv2 */
        uint64_t p = t->rows[(size_t)t->scan_row[i] * t->rw + SS_PRIO];
        if (p > row[SS_PRIO] || (p == row[SS_PRIO] && t->scan_row[i] > number)) break;
        i++;
    }
    memmove(t->scan_row + i + 1, t->scan_row + i, 4 * (size_t)(n - i));
    s = t->scan + (size_t)i * stride;
    memmove(s + stride, s, 8 * (size_t)stride * (n - i));
    t->scan_row[i] = number;
    for (uint32_t w = 0; w < t->kw; w++) {
        s[2 * w] = row[SS_KEY + w];
        s[2 * w + 1] = row[SS_KEY + t->kw + w];
    }
    ss_chain(t, n + 1);
}
/* Adds an entry; gives its handle or an SS_E_ code. prio is the prefix length of an
 * lpm table, 0 of an exact one, and of a ternary one smaller wins. */
static int64_t ss_table_insert(ss_table *t, const uint64_t *key, const uint64_t *mask,
                               uint64_t prio, uint64_t meta, const uint64_t *params) {
    uint64_t *row;
    uint32_t h;
    if (ss_find_duplicate(t, key, mask, prio) >= 0) return SS_E_DUPLICATE;
    if (t->count >= t->max_size) return SS_E_FULL;
    t->shift = SS_STALE;
    if (!ss_table_reserve(t)) return SS_E_MEMORY;
    if (t->kind == SS_LPM && !ss_matches_every(t, mask) && !ss_group_add(t, prio, mask))
        return SS_E_MEMORY;
    for (h = t->first_free; t->rows[(size_t)h * t->rw] & SS_USED; h++) {}
    t->first_free = h + 1;
    if (t->kind == SS_LPM && ss_matches_every(t, mask)) t->single = h + 1;
    row = t->rows + (size_t)h * t->rw;
    memset(row, 0, 8 * (size_t)t->rw);
    row[SS_META] = meta | SS_USED;
    row[SS_PRIO] = prio;
    if (t->metered) ss_meter_clear(t->meters + h);
    if (t->aged) t->seen[h] = 0;
    memcpy(row + SS_KEY, key, 8 * (size_t)t->kw);
    if (t->mw) memcpy(row + SS_KEY + t->kw, mask, 8 * (size_t)t->mw);
    if (t->pw) memcpy(ss_params(t, row), params, 8 * (size_t)t->pw);
    if (t->kind == SS_TERNARY) ss_scan_insert(t, h);
    else ss_slot_insert(t, h);
    t->count++;
    if (t->kind == SS_EXACT) t->single = t->count == 1 ? h + 1 : 0;
    return h;
}
static int ss_table_remove(ss_table *t, uint64_t handle) {
    uint64_t *row = ss_row(t, handle);
    if (!row) return SS_E_HANDLE;
    if (t->kind == SS_TERNARY) {
        uint32_t i = 0, stride = 2 * t->kw;
        while (t->scan_row[i] != handle) i++;
        memmove(t->scan_row + i, t->scan_row + i + 1, 4 * (size_t)(t->count - i - 1));
        memmove(t->scan + (size_t)i * stride, t->scan + (size_t)(i + 1) * stride,
                8 * (size_t)stride * (t->count - i - 1));
        ss_chain(t, t->count - 1);
    } else {
        uint32_t m = t->slot_mask;
        uint32_t i = (uint32_t)ss_hash_key(row + SS_KEY, t->kw, row[SS_PRIO]) & m, j;
        while (t->slots[i] != handle + 1) i = (i + 1) & m;
        for (j = (i + 1) & m; t->slots[j]; j = (j + 1) & m) { /* close the gap */
            const uint64_t *r = t->rows + (size_t)(t->slots[j] - 1) * t->rw;
            uint32_t home = (uint32_t)ss_hash_key(r + SS_KEY, t->kw, r[SS_PRIO]) & m;
            if (((j - home) & m) < ((j - i) & m)) continue;
            t->slots[i] = t->slots[j];
            i = j;
        }
        t->slots[i] = 0;
        if (t->kind == SS_LPM && t->single == handle + 1) t->single = 0;
        else if (t->kind == SS_LPM) ss_group_remove(t, row[SS_PRIO]);
    }
    row[SS_META] = 0;
    t->count--;
    t->shift = SS_STALE;
    if (t->kind == SS_EXACT) {
        uint32_t h = 0;
        while (t->count == 1 && !(t->rows[(size_t)h * t->rw] & SS_USED)) h++;
        t->single = t->count == 1 ? h + 1 : 0;
    }
    if (t->kind != SS_TERNARY && ++t->gone > t->capacity / 2) ss_filter_again(t);
    if (handle < t->first_free) t->first_free = (uint32_t)handle;
    return 0;
}
static void ss_table_empty(ss_table *t) {
    if (t->rows) memset(t->rows, 0, 8 * (size_t)t->rw * t->capacity);
    if (t->slots && t->kind == SS_TERNARY) {
        ss_chain(t, 0);
    } else if (t->slots) {
        memset(t->slots, 0, 4 * ((size_t)t->slot_mask + 1));
        ss_filter_again(t);
    }
    t->count = t->groups_n = t->single = t->first_free = 0;
    t->shift = SS_STALE;
}

static int ss_profile_member(ss_profile *p, uint32_t id, uint64_t meta, const uint64_t *params) {
    size_t stride = 1 + p->pw;
    if (id >= p->members_cap) {
        uint32_t cap = p->members_cap ? 2 * p->members_cap : 8;
        uint64_t *m;
        while (cap <= id) cap *= 2;
        if (!(m = ss_grow(p->members, cap, 8 * stride))) return SS_E_MEMORY;
        memset(m + stride * p->members_cap, 0, 8 * stride * (cap - p->members_cap));
        p->members = m;
        p->members_cap = cap;
    }
    p->members[stride * id] = meta;
    if (p->pw && params) memcpy(p->members + stride * id + 1, params, 8 * (size_t)p->pw);
    return 0;
}
static int ss_profile_group(ss_profile *p, uint32_t id, const uint32_t *members, uint32_t n) {
    uint32_t *g;
    if (id >= p->groups_cap) {
        uint32_t cap = p->groups_cap ? 2 * p->groups_cap : 8, **all;
        while (cap <= id) cap *= 2;
        if (!(all = ss_grow(p->groups, cap, sizeof *all))) return SS_E_MEMORY;
        memset(all + p->groups_cap, 0, sizeof *all * (cap - p->groups_cap));
        p->groups = all;
        p->groups_cap = cap;
    }
    if (!(g = malloc(4 * ((size_t)n + 1)))) return SS_E_MEMORY;
    g[0] = n;
    if (n) memcpy(g + 1, members, 4 * (size_t)n);
    free(p->groups[id]);
    p->groups[id] = g;
    return 0;
}
/* the member an indirect reference means; NULL for an empty group */
SS_INLINE uint64_t *ss_member(const ss_profile *p, uint64_t meta, uint64_t hash) {
    uint32_t id = (uint32_t)meta;
    if (meta & SS_GROUP) {
        const uint32_t *g = p->groups[id];
        if (!g || !g[0]) return NULL;
        id = g[1 + hash % g[0]];
    }
    return p->members + (size_t)(1 + p->pw) * id;
}
static void ss_profile_free(ss_profile *p) {
    for (uint32_t i = 0; i < p->groups_cap; i++) free(p->groups[i]);
    free(p->groups);
    free(p->members);
}
