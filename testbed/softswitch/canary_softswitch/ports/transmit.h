/* SPDX-License-Identifier: Apache-2.0 */
/* What leaves: by sockets in batches, by queues where these do not take it at once. */

static pp_port *pp_find(pp_set *s, uint32_t number) {
    uint16_t place = number < PP_PORTS ? s->by_number[number] : 0;
    return place ? s->ports + place - 1 : NULL;
}

/* Has epoll say when a port's socket takes packets again, or no more. At other times the socket is
 * not polled: while its interface is down, it would report the error again and again. */
static void pp_watch(pp_set *s, pp_port *p, int out) {
    struct epoll_event e = {.events = EPOLLOUT, .data.u64 = (uintptr_t)p};
    if (p->egress.watched == out || p->out_fd < 0) return;
    p->egress.watched = out;
    epoll_ctl(s->worker->epoll, out ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, p->out_fd, &e);
}
static void pp_set_timer(pp_set *s, uint64_t at_ns) {
    struct itimerspec t = {.it_value = {(time_t)(at_ns / 1000000000), (long)(at_ns % 1000000000)}};
    if (s->timer_ns && s->timer_ns <= at_ns) return;
    s->timer_ns = at_ns;
    timerfd_settime(s->timer, TFD_TIMER_ABSTIME, &t, NULL);
}

/* A packet has left. */
static void pp_sent(pp_set *s, pp_port *p, const uint8_t *data, uint32_t length) {
    p->count.tx_packets++;
    p->count.tx_bytes += length;
    if (p->out) pp_pcap_write(p->out, data, length);
    if (s->log.fd < 0) return;
    pp_say(&s->log, PP_DEBUG, "[%llu.0] [cxt 0] Transmitting packet of size %u out of port %u",
           (unsigned long long)s->number, length, p->number);
    pp_dump(&s->log, "Sending packet", p->number, data, length);
}

static void pp_queue_up(pp_set *s, pp_port *p, uint32_t priority, const uint8_t *data,
                        uint32_t length) {
    if (!pp_push(&p->egress, priority, data, length, pp_clock_ns())) p->count.tx_dropped++;
    (void)s;
}

/* Sends the due packets of a port's queues, and schedules the others. */
static void pp_drain(pp_set *s, pp_port *p) {
    uint64_t now = pp_clock_ns(), next = UINT64_MAX;
    pp_queue *q;
    while ((q = pp_due(&p->egress, s->priorities, now, &next))) {
        pp_waiting *w = q->first;
        ssize_t done = w->length;
        if (p->out_fd >= 0)
            do done = send(p->out_fd, w->data, w->length, MSG_DONTWAIT);
            while (done < 0 && errno == EINTR);
        if (done < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            pp_watch(s, p, 1);
            return;
        }
        if (done < 0) p->count.tx_dropped++;
        else pp_sent(s, p, w->data, w->length);
        pp_pop(&p->egress, q);
    }
    pp_watch(s, p, 0);
    if (next != UINT64_MAX) pp_set_timer(s, next);
}
static void pp_timer(pp_set *s) {
    uint64_t times;
    if (read(s->timer, &times, sizeof times) < 0) return;
    s->timer_ns = 0;
    for (uint32_t i = 0; i < s->ports_n; i++)
        if (s->ports[i].egress.rated && s->ports[i].egress.n) pp_drain(s, s->ports + i);
}

/* Sends what a port got of the last packets; what its socket does not take waits. */
static void pp_send_port(pp_set *s, pp_port *p) {
    struct mmsghdr m[PP_OUT];
    struct iovec v[PP_OUT];
    const pp_out *which[PP_OUT];
    uint32_t n = 0, at = 0;
    pp_space *space = s->space;
    for (uint16_t i = p->first; i; i = space->out[i - 1].next, n++) {
        which[n] = space->out + i - 1;
        v[n] = (struct iovec){space->arena + which[n]->offset, which[n]->length};
        memset(m + n, 0, sizeof *m);
        m[n].msg_hdr.msg_iov = v + n;
        m[n].msg_hdr.msg_iovlen = 1;
    }
    p->first = p->last = 0;
    while (at < n) {
        int done = p->out_fd < 0 ? (int)(n - at) : sendmmsg(p->out_fd, m + at, n - at, MSG_DONTWAIT);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
        for (; done > 0; done--, at++) pp_sent(s, p, v[at].iov_base, which[at]->length);
        if (done < 0) p->count.tx_dropped++, at++; /* the first one could not be sent */
    }
    if (at == n) return;
    for (; at < n; at++) pp_queue_up(s, p, which[at]->priority, v[at].iov_base, which[at]->length);
    pp_watch(s, p, 1);
}
static void pp_send(pp_set *s) {
    pp_space *space = s->space;
    for (uint32_t i = 0; i < space->busy_n; i++) pp_send_port(s, s->ports + space->busy[i]);
    space->out_n = space->busy_n = space->arena_used = 0;
}
