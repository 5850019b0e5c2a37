/* SPDX-License-Identifier: Apache-2.0 */
/* Functions the Python side calls: creation, tables, digests, batches. */

void ss_destroy(ss_switch *sw) {
    ss_item *it;
    ss_chunk *c;
    if (!sw) return;
    for (int i = 0; i < SS_TABLES; i++) ss_table_free(sw->tables + i);
    for (uint32_t b = 0; b < SS_BLOCKS; b++) ss_block_free(sw->blocks[b], b);
    for (int i = 0; sw->profiles && i < SS_PROFILES; i++) ss_profile_free(sw->profiles + i);
    for (int i = 0; sw->counters && i < SS_COUNTERS; i++) free(sw->counters[i]);
    for (int i = 0; sw->meters && i < SS_METERS; i++) free(sw->meters[i]);
    for (int i = 0; sw->value_sets && i < SS_VALUE_SETS; i++) free(sw->value_sets[i].values);
    for (int i = 0; sw->learn && i < SS_LEARN_LISTS; i++) {
        free(sw->learn[i].samples);
        free(sw->learn[i].slots);
    }
    for (uint32_t i = 0; i < sw->mgroups_n; i++) free(sw->mgroups[i].pairs);
    while ((it = sw->free)) {
        sw->free = it->next;
        free(it);
    }
    while ((c = sw->chunks)) {
        sw->chunks = c->next;
        free(c);
    }
    free(sw->profiles);
    free(sw->counters);
    free(sw->meters);
    free(sw->value_sets);
    free(sw->learn);
    free(sw->sessions);
    free(sw->mgroups);
    free(sw);
}

/* meta 0 restores the default of the program */
void ss_table_default(ss_switch *sw, uint32_t t, uint64_t meta, const uint64_t *params) {
    const ss_table_info *info = ss_table_infos + t;
    uint64_t *entry = sw->defaults + ss_default_places[t];
    entry[0] = meta ? meta : info->default_meta;
    if (!meta) params = info->default_params;
    for (uint32_t i = 0; i < info->pw; i++) entry[1 + i] = params ? params[i] : 0;
}

ss_switch *ss_create(uint64_t seed) {
    int ok;
    ss_switch *sw = aligned_alloc(64, (sizeof *sw + 63) & ~(size_t)63);
    if (!sw) return NULL;
    memset(sw, 0, sizeof *sw);
    ss_seed(sw->random, seed);
    sw->profiles = calloc(SS_PROFILES + 1, sizeof *sw->profiles);
    sw->counters = calloc(SS_COUNTERS + 1, sizeof *sw->counters);
    sw->meters = calloc(SS_METERS + 1, sizeof *sw->meters);
    sw->value_sets = calloc(SS_VALUE_SETS + 1, sizeof *sw->value_sets);
    sw->learn = calloc(SS_LEARN_LISTS + 1, sizeof *sw->learn);
    sw->queues = 1;
    ok = sw->profiles && sw->counters && sw->meters && sw->value_sets && sw->learn;
    for (uint32_t i = 0; i < SS_TABLES; i++) {
        ss_table_init(sw->tables + i, ss_table_infos + i);
        ss_table_default(sw, i, 0, NULL);
    }
    for (int i = 0; ok && i < SS_PROFILES; i++) sw->profiles[i].pw = ss_profile_words[i];
    for (int i = 0; ok && i < SS_COUNTERS; i++)
        ok = !!(sw->counters[i] = calloc(ss_counter_sizes[i] + 1, sizeof(ss_count)));
    for (int i = 0; ok && i < SS_METERS; i++)
        ok = !!(sw->meters[i] = calloc((size_t)ss_meter_sizes[i] + 1, sizeof(ss_meter)));
    for (int i = 0; ok && i < SS_LEARN_LISTS; i++) sw->learn[i].words = ss_learn_words[i];
    if (!ok) {
        ss_destroy(sw);
        return NULL;
    }
    return sw;
}

/* Add an entry, or remove one, of one of the switch's tables. */
static int64_t ss_insert(ss_switch *sw, uint32_t t, const uint64_t *key, const uint64_t *mask,
                         uint64_t prio, uint64_t meta, const uint64_t *params) {
    int64_t handle = ss_table_insert(sw->tables + t, key, mask, prio, meta, params);
    ss_note_filled(sw, t);
    return handle;
}
static int ss_remove(ss_switch *sw, uint32_t t, uint64_t handle) {
    int failed = ss_table_remove(sw->tables + t, handle);
    ss_note_filled(sw, t);
    return failed;
}
int64_t ss_table_add(ss_switch *sw, uint32_t t, const uint64_t *key, const uint64_t *mask,
                     uint64_t prio, uint64_t meta, const uint64_t *params) {
    return ss_insert(sw, t, key, mask, prio, meta, params);
}
int ss_table_modify(ss_switch *sw, uint32_t t, uint64_t handle, uint64_t meta,
                    const uint64_t *params) {
    ss_table *table = sw->tables + t;
    uint64_t *row = ss_row(table, handle);
    if (!row) return SS_E_HANDLE;
    row[SS_META] = meta | SS_USED;
    if (table->pw) memcpy(ss_params(table, row), params, 8 * (size_t)table->pw);
    return 0;
}
int ss_table_delete(ss_switch *sw, uint32_t t, uint64_t handle) {
    return ss_remove(sw, t, handle);
}
void ss_table_clear(ss_switch *sw, uint32_t t) {
    ss_table_empty(sw->tables + t);
    ss_note_filled(sw, t);
}
const uint64_t *ss_table_row(ss_switch *sw, uint32_t t, uint64_t handle) {
    return ss_row(sw->tables + t, handle);
}
/* Of all rows, used or not; NULL before the first. */
const uint64_t *ss_table_rows(ss_switch *sw, uint32_t t) { return sw->tables[t].rows; }
/* Packets and bytes of entries; how many there are before the first handle that has none. */
uint64_t ss_table_counters(ss_switch *sw, uint32_t t, const uint64_t *handles, uint64_t n,
                           uint64_t *out) {
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t *row = ss_row(sw->tables + t, handles[i]);
        if (!row) return i;
        memcpy(out + 2 * i, row + 2, 16);
    }
    return n;
}
/* Of n entries of many switches' tables, entry i of switch which[i]: as the functions of one, one after
 * the other, up to the first that fails. They return how many did not. Behind each key there is its
 * mask, unless all keys are exact. `handles` gets the handles, or the SS_E_ code of the one that fails. */
uint64_t ss_many_add(ss_switch *const *sw, uint32_t t, const int64_t *which, uint64_t n,
                     const uint64_t *keys, uint64_t prio, uint64_t meta, const uint64_t *params,
                     int64_t *handles) {
    for (uint64_t i = 0; i < n; i++) {
        const ss_table *table = sw[which[i]]->tables + t;
        handles[i] = ss_insert(sw[which[i]], t, keys, keys + table->kw, prio, meta, params);
        if (handles[i] < 0) return i;
        keys += table->kw + table->mw;
    }
    return n;
}
uint64_t ss_many_delete(ss_switch *const *sw, uint32_t t, const int64_t *which, uint64_t n,
                        const int64_t *handles) {
    for (uint64_t i = 0; i < n; i++)
        if (ss_remove(sw[which[i]], t, (uint64_t)handles[i])) return i;
    return n;
}
uint64_t ss_many_counters(ss_switch *const *sw, uint32_t t, const int64_t *which, uint64_t n,
                          const int64_t *handles, uint64_t *out) {
    for (uint64_t i = 0; i < n; i++)
        if (!ss_table_counters(sw[which[i]], t, (const uint64_t *)handles + i, 1, out + 2 * i)) return i;
    return n;
}
const uint64_t *ss_table_default_row(ss_switch *sw, uint32_t t) {
    return sw->defaults + ss_default_places[t];
}
uint32_t ss_table_capacity(ss_switch *sw, uint32_t t) { return sw->tables[t].capacity; }
uint32_t ss_table_count(ss_switch *sw, uint32_t t) { return sw->tables[t].count; }

int ss_set_member(ss_switch *sw, uint32_t p, uint32_t id, uint64_t meta, const uint64_t *params) {
    return ss_profile_member(sw->profiles + p, id, meta, params);
}
int ss_set_group(ss_switch *sw, uint32_t p, uint32_t id, const uint32_t *members, uint32_t n) {
    return ss_profile_group(sw->profiles + p, id, members, n);
}
void *ss_register(ss_switch *sw, uint32_t r) {
    uint8_t *block = ss_block(sw, ss_register_places[r][0]);
    return block ? block + ss_register_places[r][1] : NULL;
}
uint64_t ss_register_bytes(ss_switch *sw) { return sw->register_bytes; }
void *ss_counter(ss_switch *sw, uint32_t c) { return sw->counters[c]; }

ss_meter *ss_meter_at(ss_switch *sw, uint32_t m, uint32_t index) { return sw->meters[m] + index; }
ss_meter *ss_table_meter(ss_switch *sw, uint32_t t, uint64_t handle) {
    return ss_row(sw->tables + t, handle) ? sw->tables[t].meters + handle : NULL;
}
/* Time of an entry's last hit; 0: none, or no such entry. */
uint64_t ss_table_seen(ss_switch *sw, uint32_t t, uint64_t handle) {
    return ss_row(sw->tables + t, handle) ? sw->tables[t].seen[handle] : 0;
}
/* values: two words each, low first */
int ss_set_value_set(ss_switch *sw, uint32_t set, const uint64_t *values, uint32_t n) {
    uint64_t *copy = malloc(16 * (size_t)n + 1);
    if (!copy) return SS_E_MEMORY;
    if (n) memcpy(copy, values, 16 * (size_t)n);
    free(sw->value_sets[set].values);
    sw->value_sets[set] = (ss_value_set){n, copy};
    return 0;
}
void ss_set_crc(ss_switch *sw, uint32_t crc, uint32_t width, uint32_t polynomial, uint32_t initial,
                uint32_t final_xor, int reflect_data, int reflect_remainder) {
    ss_crc *c = sw->crcs + crc;
    *c = (ss_crc){width, initial, final_xor, (uint32_t)reflect_data, (uint32_t)reflect_remainder,
                  {0}};
    ss_crc_init(c, polynomial);
}
void ss_set_queues(ss_switch *sw, uint32_t queues) { sw->queues = queues; }

/* Copies the waiting samples of a digest to dst (words + 2 each); gives their number. */
uint32_t ss_digest_count(ss_switch *sw, uint32_t l) { return sw->learn[l].n; }
uint64_t ss_digest_lost(ss_switch *sw, uint32_t l) { return sw->learn[l].lost; }
void ss_digest_read(ss_switch *sw, uint32_t l, uint64_t *dst, uint32_t n, int ack) {
    ss_learn_list *list = sw->learn + l;
    if (n) memcpy(dst, list->samples, 8 * (size_t)(list->words + 2) * n);
    if (ack) ss_learn_clear(sw, list);
}
/* Copies samples from one number on, at most n; gives how many. Numbers rise. */
uint32_t ss_digest_since(ss_switch *sw, uint32_t l, uint64_t number, uint64_t *dst, uint32_t n) {
    const ss_learn_list *list = sw->learn + l;
    uint32_t stride = list->words + 2, lo = 0, hi = list->n;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (list->samples[(size_t)mid * stride + list->words + 1] < number) lo = mid + 1;
        else hi = mid;
    }
    if (n > list->n - lo) n = list->n - lo;
    if (n && dst) memcpy(dst, list->samples + (size_t)lo * stride, 8 * (size_t)stride * n);
    return n;
}
/* Acknowledges the samples numbered from ... to - 1: equal ones are kept again from now on. */
void ss_digest_forget(ss_switch *sw, uint32_t l, uint64_t from, uint64_t to) {
    ss_learn_list *list = sw->learn + l;
    uint32_t w = list->words, stride = w + 2, kept = 0;
    uint64_t *s = list->samples;
    for (uint32_t i = 0; i < list->n; i++) {
        uint64_t *x = s + (size_t)i * stride;
        if (x[w + 1] >= from && x[w + 1] < to) continue;
        if (kept != i) memcpy(s + (size_t)kept * stride, x, 8 * (size_t)stride);
        kept++;
    }
    if (kept == list->n) return;
    sw->pending -= list->n - kept;
    list->n = kept;
    memset(list->slots, 0, 4 * ((size_t)list->slot_mask + 1));
    for (uint32_t i = 0; i < kept; i++) {
        uint32_t j = (uint32_t)ss_hash_key(s + (size_t)i * stride, w, 1);
        while (list->slots[j & list->slot_mask]) j++;
        list->slots[j & list->slot_mask] = i + 1;
    }
}

int ss_set_session(ss_switch *sw, uint32_t id, uint32_t port, uint32_t has_port, uint32_t limit,
                   uint32_t mgid) {
    ss_session *s = (ss_session *)ss_session_of(sw, id);
    if (!s) {
        if (!(s = ss_grow(sw->sessions, sw->sessions_n + 1, sizeof *s))) return SS_E_MEMORY;
        sw->sessions = s;
        s += sw->sessions_n++;
    }
    *s = (ss_session){id, port, limit, mgid, has_port};
    return 0;
}
void ss_delete_session(ss_switch *sw, uint32_t id) {
    ss_session *s = (ss_session *)ss_session_of(sw, id);
    if (s) *s = sw->sessions[--sw->sessions_n];
}
int ss_set_mgroup(ss_switch *sw, uint32_t id, const uint32_t *pairs, uint32_t n) {
    ss_mgroup *g = (ss_mgroup *)ss_mgroup_of(sw, id);
    uint32_t *copy = malloc(8 * (size_t)n + 1), i = sw->mgroups_n;
    if (!copy) return SS_E_MEMORY;
    if (n) memcpy(copy, pairs, 8 * (size_t)n);
    if (!g) {
        if (!(g = ss_grow(sw->mgroups, i + 1, sizeof *g))) {
            free(copy);
            return SS_E_MEMORY;
        }
        sw->mgroups = g;
        for (; i && g[i - 1].id > id; i--) g[i] = g[i - 1];
        sw->mgroups_n++;
        g += i;
        g->pairs = NULL;
    }
    free(g->pairs);
    *g = (ss_mgroup){id, n, copy};
    return 0;
}
void ss_random_state(ss_switch *sw, uint64_t *state) { memcpy(state, sw->random, 32); }
uint32_t ss_fault_line(ss_switch *sw) { return sw->fault_line; }

/* Outputs of a batch; the arrays are malloc'ed and belong to the caller (ss_free). */
typedef struct {
    uint64_t n, bytes, queue_dropped, faults;
    uint64_t n_cap, bytes_cap;
    uint16_t *ports;
    uint32_t *source;
    uint64_t *offsets;
    uint8_t *data;
    int32_t first_fault;
    uint32_t first_fault_packet;
} ss_batch_out;

static int ss_batch_room(ss_batch_out *b, uint64_t packets, uint64_t bytes) {
    if (b->n + packets > b->n_cap) {
        uint64_t cap = 2 * b->n_cap + packets;
        void *p;
        if (!(p = realloc(b->ports, 2 * cap))) return 0;
        b->ports = p;
        if (!(p = realloc(b->source, 4 * cap))) return 0;
        b->source = p;
        if (!(p = realloc(b->offsets, 8 * (cap + 1)))) return 0;
        b->offsets = p;
        b->n_cap = cap;
    }
    if (b->bytes + bytes > b->bytes_cap) {
        uint64_t cap = b->bytes_cap + b->bytes_cap / 2 + bytes, huge = 2 << 20;
        void *p = NULL;
        if (cap < huge) p = malloc(cap);
        else if (posix_memalign(&p, huge, cap)) p = NULL;
        if (!p) return 0;
#ifdef MADV_HUGEPAGE /* touching small pages one by one would cost more than the copy */
        if (cap >= huge) madvise(p, cap, MADV_HUGEPAGE);
#endif
        if (b->bytes) memcpy(p, b->data, b->bytes);
        free(b->data);
        b->data = p;
        b->bytes_cap = cap;
    }
    return 1;
}
/* now: one time per packet, or NULL and now_all for all. observed: n values. */
int ss_batch(ss_switch *sw, uint64_t n, const uint16_t *ports, const uint8_t *data,
             const uint64_t *offsets, const uint64_t *now, uint64_t now_all, uint64_t *observed,
             ss_batch_out *b) {
    ss_result r;
    memset(b, 0, sizeof *b);
    if (!ss_batch_room(b, n + 1, offsets[n] - offsets[0] + 64 * n + 1)) return SS_NO_MEMORY;
    b->offsets[0] = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t length = (uint32_t)(offsets[i + 1] - offsets[i]);
        int rc = ss_process(sw, ports[i], data + offsets[i], length,
                            now ? now[i] : now_all, NULL, NULL, &r);
        uint64_t bytes = 0;
        if (rc && !b->faults++) {
            b->first_fault = rc;
            b->first_fault_packet = (uint32_t)i;
        }
        observed[i] = r.observed;
        for (uint32_t k = 0; k < r.n; k++) bytes += r.packets[k].length;
        if (!ss_batch_room(b, r.n, bytes)) return SS_NO_MEMORY;
        for (uint32_t k = 0; k < r.n; k++) {
            memcpy(b->data + b->bytes, r.packets[k].data, r.packets[k].length);
            b->bytes += r.packets[k].length;
            b->ports[b->n] = (uint16_t)r.packets[k].port;
            b->source[b->n] = (uint32_t)i;
            b->offsets[++b->n] = b->bytes;
        }
    }
    return SS_OK;
}
void ss_free(void *p) { free(p); }
