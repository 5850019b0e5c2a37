/* SPDX-License-Identifier: Apache-2.0 */
/* The state of one switch: tables, registers, counters, digests, sessions, buffers. */

typedef struct { uint64_t packets, bytes; } ss_count;
typedef struct { uint32_t id, port, limit, mgid; uint32_t has_port; } ss_session;
typedef struct { uint32_t id, n; uint32_t *pairs; } ss_mgroup; /* pairs: port, rid */
typedef struct {
    uint32_t words;   /* 64-bit words of one sample; stored with two more: now_us, number */
    uint32_t n, cap, slot_mask;
    uint64_t *samples;
    uint32_t *slots;  /* sample + 1 by content: the filter of unacknowledged samples */
    uint64_t number, lost;
} ss_learn_list;
typedef struct { /* a CRC whose parameters were set; width 0: none were, it is the usual one */
    uint32_t width, initial, final_xor, reflect_data, reflect_remainder;
    uint32_t table[256];
} ss_crc;
typedef struct { uint32_t n; uint64_t *values; } ss_value_set; /* two words each, low first */
typedef struct ss_chunk { struct ss_chunk *next; size_t size, used; uint8_t data[]; } ss_chunk;
typedef struct ss_item ss_item;

struct ss_switch { /* what every packet needs comes first */
    uint64_t now;
    ss_admit_fn admit;
    void *admit_ctx;
    ss_result *out;
    ss_chunk *chunks, *current;
    int fault;
    uint32_t fault_line;   /* index of the failed assert */
    uint32_t queues;       /* of each egress port: priorities 0 to queues - 1 */
    uint32_t priority, enq_qdepth, deq_timedelta, deq_qdepth; /* of the packet that admit sees */
    ss_profile *profiles;
    uint64_t filled[SS_TABLES / 64 + 1]; /* a bit for each table that has entries: others are not read */
    uint64_t defaults[SS_DEFAULT_WORDS + 1]; /* of each table: meta, parameters */
    uint8_t *blocks[SS_BLOCKS + 1]; /* registers; NULL until they are used */
    uint64_t random[4];
    ss_count **counters;
    ss_meter **meters;
    ss_value_set *value_sets;
    ss_learn_list *learn;
    ss_session *sessions;
    ss_mgroup *mgroups;
    uint32_t sessions_n, mgroups_n, pending;
    uint64_t register_bytes;
    ss_table tables[SS_TABLES + 1];
    ss_item *free, *ingress, *ingress_end, *egress, *egress_end;
    ss_log_fn log;
    void *log_ctx;
    ss_crc crcs[SS_CRCS + 1];
};

#define SS_FILLED(sw, t) ((sw)->filled[(t) / 64] >> ((t) % 64) & 1)
static void ss_note_filled(ss_switch *sw, uint32_t t) {
    uint64_t bit = UINT64_C(1) << (t % 64);
    if (sw->tables[t].count) sw->filled[t / 64] |= bit;
    else sw->filled[t / 64] &= ~bit;
}

static uint32_t ss_reflect(uint32_t x, uint32_t bits) {
    uint32_t y = 0;
    for (; bits; bits--, x >>= 1) y = y << 1 | (x & 1);
    return y;
}
static void ss_crc_init(ss_crc *c, uint32_t polynomial) {
    uint32_t top = UINT32_C(1) << (c->width - 1);
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t r = i << (c->width - 8);
        for (int k = 0; k < 8; k++) r = r & top ? r << 1 ^ polynomial : r << 1;
        c->table[i] = r;
    }
}
static SS_UNUSED uint64_t ss_crc_custom(const ss_crc *c, const uint8_t *p, size_t n) {
    uint32_t r = c->initial, mask = UINT32_MAX >> (32 - c->width);
    for (; n--; p++) {
        uint32_t x = c->reflect_data ? ss_reflect(*p, 8) : *p;
        r = c->table[(x ^ (r & mask) >> (c->width - 8)) & 255] ^ r << 8;
    }
    r &= mask;
    return ((c->reflect_remainder ? ss_reflect(r, c->width) : r) ^ c->final_xor) & mask;
}

/* Registers that are used together, made on first use, aligned to cache lines; NULL: no memory. Of large
 * ones the system clears the pages that are used, and gives no others. */
#define SS_PAGES (1 << 15) /* bytes from which on memory comes in pages of its own */
static size_t ss_block_bytes(uint32_t b) { return ss_blocks[b][0] * ss_blocks[b][1]; }
static SS_UNUSED __attribute__((noinline, cold)) uint8_t *ss_block_new(ss_switch *sw, uint32_t b) {
    size_t size = ss_block_bytes(b);
    uint8_t *at = NULL;
    if (size >= SS_PAGES) {
        void *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        at = pages == MAP_FAILED ? NULL : pages;
    } else if ((at = aligned_alloc(64, (size + 64) & ~(size_t)63))) {
        memset(at, 0, size);
    }
    if (!at) {
        sw->fault = SS_NO_MEMORY;
        return NULL;
    }
    sw->register_bytes += size;
    return sw->blocks[b] = at;
}
static void ss_block_free(uint8_t *at, uint32_t b) {
    if (at && ss_block_bytes(b) >= SS_PAGES) munmap(at, ss_block_bytes(b));
    else free(at);
}
SS_INLINE uint8_t *ss_block(ss_switch *sw, uint32_t b) {
    uint8_t *at = sw->blocks[b];
    return __builtin_expect(!!at, 1) ? at : ss_block_new(sw, b);
}

/* Output buffers: bump allocation from chunks that never move while in use. */
static uint8_t *ss_alloc(ss_switch *sw, size_t n) {
    ss_chunk *c = sw->current;
    n = (n + 15) & ~(size_t)15;
    if (!c && (c = sw->chunks)) c->used = 0; /* the packet's first */
    while (c && c->size - c->used < n) {
        c = c->next;
        if (c) c->used = 0;
    }
    if (!c) {
        size_t size = n > 8192 ? n : 8192;
        ss_chunk **end = &sw->chunks;
        if (!(c = malloc(sizeof *c + size))) {
            sw->fault = SS_NO_MEMORY;
            return NULL;
        }
        c->next = NULL;
        c->size = size;
        c->used = 0;
        while (*end) end = &(*end)->next;
        *end = c;
    }
    sw->current = c;
    c->used += n;
    return c->data + c->used - n;
}

#define SS_LEARN_MAX (1u << 20) /* samples kept per digest; later ones are counted as lost */

/* Keeps a sample unless an identical one waits to be acknowledged. */
static SS_UNUSED void ss_learn(ss_switch *sw, ss_learn_list *l, const uint64_t *sample) {
    uint32_t w = l->words, stride = w + 2;
    uint32_t i = (uint32_t)ss_hash_key(sample, w, 1);
    uint64_t *s;
    if (l->n)
        for (; l->slots[i & l->slot_mask]; i++)
            if (ss_same(l->samples + (size_t)(l->slots[i & l->slot_mask] - 1) * stride, sample, w))
                return;
    if (l->n >= SS_LEARN_MAX) {
        l->lost++;
        return;
    }
    if (l->n == l->cap) {
        uint32_t cap = l->cap ? 2 * l->cap : 16;
        uint32_t *slots = calloc((size_t)cap * 4, 4);
        if (!slots || !(s = ss_grow(l->samples, cap, 8 * (size_t)stride))) {
            free(slots);
            sw->fault = SS_NO_MEMORY;
            return;
        }
        l->samples = s;
        free(l->slots);
        l->slots = slots;
        l->cap = cap;
        l->slot_mask = cap * 4 - 1;
        for (uint32_t k = 0; k < l->n; k++) {
            uint32_t j = (uint32_t)ss_hash_key(s + (size_t)k * stride, w, 1);
            while (slots[j & l->slot_mask]) j++;
            slots[j & l->slot_mask] = k + 1;
        }
        for (i = (uint32_t)ss_hash_key(sample, w, 1); slots[i & l->slot_mask];) i++;
    }
    s = l->samples + (size_t)l->n * stride;
    memcpy(s, sample, 8 * (size_t)w);
    s[w] = sw->now;
    s[w + 1] = l->number++;
    l->slots[i & l->slot_mask] = ++l->n;
    sw->pending++;
}
static void ss_learn_clear(ss_switch *sw, ss_learn_list *l) {
    sw->pending -= l->n;
    l->n = 0;
    if (l->slots) memset(l->slots, 0, 4 * ((size_t)l->slot_mask + 1));
}

static SS_UNUSED int ss_in_value_set(const ss_switch *sw, uint32_t set, u128 key, u128 mask) {
    const ss_value_set *s = sw->value_sets + set;
    for (uint32_t i = 0; i < s->n; i++) {
        u128 value = (u128)s->values[2 * i + 1] << 64 | s->values[2 * i];
        if (!((value ^ key) & mask)) return 1;
    }
    return 0;
}

static const ss_session *ss_session_of(const ss_switch *sw, uint32_t id) {
    for (uint32_t i = 0; i < sw->sessions_n; i++)
        if (sw->sessions[i].id == id) return sw->sessions + i;
    return NULL;
}
static const ss_mgroup *ss_mgroup_of(const ss_switch *sw, uint32_t id) {
    uint32_t lo = 0, hi = sw->mgroups_n;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (sw->mgroups[mid].id == id) return sw->mgroups + mid;
        if (sw->mgroups[mid].id < id) lo = mid + 1;
        else hi = mid;
    }
    return NULL;
}
