/* SPDX-License-Identifier: Apache-2.0 */
/* Meters of two rates and three colours, as BMv2 computes them: tokens that came since time 0. */

typedef struct { double rate; uint64_t burst, tokens, last; } ss_rate; /* units a microsecond */
typedef struct { ss_rate rates[2]; uint32_t configured; } ss_meter;    /* committed, peak */

static SS_UNUSED uint32_t ss_meter_run(ss_meter *m, uint64_t now_us, uint64_t units) {
    if (!m->configured) return 0;
    for (int i = 1; i >= 0; i--) {
        ss_rate *r = m->rates + i;
        double sum = (double)now_us * r->rate;
        uint64_t since = sum < 18446744073709549568.0 ? (uint64_t)sum : UINT64_MAX;
        uint64_t more = since > r->last ? since - r->last : 0;
        r->last = since;
        r->tokens = more < r->burst - r->tokens ? r->tokens + more : r->burst;
        if (r->tokens < units) return (uint32_t)i + 1;
        r->tokens -= units;
    }
    return 0;
}
/* rates: committed, peak */
void ss_meter_set(ss_meter *m, const double *rates, const uint64_t *bursts) {
    for (int i = 0; i < 2; i++) m->rates[i] = (ss_rate){rates[i], bursts[i], bursts[i], 0};
    m->configured = 1;
}
void ss_meter_clear(ss_meter *m) { memset(m, 0, sizeof *m); }
/* Whether the meter is configured; its rates. */
int ss_meter_get(const ss_meter *m, double *rates, uint64_t *bursts) {
    for (int i = 0; i < 2; i++) {
        rates[i] = m->rates[i].rate;
        bursts[i] = m->rates[i].burst;
    }
    return !!m->configured;
}
