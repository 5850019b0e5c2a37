/* SPDX-License-Identifier: Apache-2.0 */
/* What comes in: in batches, with what its sender left to the interface done. */

/* The kernel takes a VLAN tag out of the packet: put it back. */
static uint8_t *pp_retag(struct msghdr *h, uint8_t *data, uint32_t *length) {
    for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
        struct tpacket_auxdata a;
        uint16_t tpid, tci;
        if (c->cmsg_level != SOL_PACKET || c->cmsg_type != PACKET_AUXDATA) continue;
        memcpy(&a, CMSG_DATA(c), sizeof a);
        if (!(a.tp_status & TP_STATUS_VLAN_VALID) || *length < 12) continue;
        tpid = a.tp_status & TP_STATUS_VLAN_TPID_VALID ? a.tp_vlan_tpid : ETH_P_8021Q;
        tpid = __builtin_bswap16(tpid);
        tci = __builtin_bswap16(a.tp_vlan_tci);
        memmove(data - PP_TAG, data, 12);
        data -= PP_TAG;
        memcpy(data + 12, &tpid, 2);
        memcpy(data + 14, &tci, 2);
        *length += PP_TAG;
    }
    return data;
}

/* A frame as it came: does what the sender left to its interface. */
static void pp_frame(pp_set *s, pp_port *p, struct virtio_net_hdr *h, uint8_t *data,
                     uint32_t length, uint64_t now) {
    pp_cut cut;
    if (h->gso_type != VIRTIO_NET_HDR_GSO_NONE && pp_cut_begin(h, data, length, &cut) &&
        cut.head + h->gso_size <= PP_BUFFER) {
        uint32_t n;
        for (uint32_t i = 0; (n = pp_cut_next(h, data, length, &cut, i, s->space->segment)); i++)
            pp_came(s, p, s->space->segment, n, now);
        return;
    }
    if (length > PP_BUFFER) {
        p->count.rx_packets++;
        p->count.rx_bytes += length;
        p->count.rx_dropped++;
        return;
    }
    if (h->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) pp_checksum(h, data, length);
    pp_came(s, p, data, length, now);
}

/* Where the packets of a batch go; once. */
static void pp_prepare(pp_worker *w) {
    for (int i = 0; i < PP_BATCH; i++) {
        struct msghdr *m = &w->messages[i].msg_hdr;
        w->frames[i] = (struct iovec){w->buffers + (size_t)i * PP_ROOM, PP_VNET + PP_FRAME};
        m->msg_iov = w->frames + i;
        m->msg_iovlen = 1;
        m->msg_control = w->control + i;
        m->msg_controllen = sizeof w->control[i].bytes;
    }
}

static void pp_receive(pp_worker *w, pp_port *p) {
    pp_set *s = p->set;
    uint64_t now;
    int n = recvmmsg(p->fd, w->messages, PP_BATCH, MSG_DONTWAIT | MSG_TRUNC, NULL);
    if (n <= 0) return; /* nothing there, or the interface went down */
    now = pp_clock_us() - s->start_us;
    pp_lock_packets(s, &w->space);
    for (int i = 0; i < n; i++) {
        struct mmsghdr *m = w->messages + i;
        struct virtio_net_hdr left;
        uint32_t length = m->msg_len - PP_VNET, tag;
        uint8_t *data = (uint8_t *)w->frames[i].iov_base + PP_VNET;
        if (m->msg_len < PP_VNET) continue;
        if (length > PP_FRAME) {
            p->count.rx_packets++;
            p->count.rx_bytes += length;
            p->count.rx_dropped++;
            continue;
        }
        tag = length;
        memcpy(&left, data - PP_VNET, PP_VNET); /* a tag goes into its place */
        data = pp_retag(&m->msg_hdr, data, &length);
        left.csum_start = (uint16_t)(left.csum_start + length - tag);
        pp_frame(s, p, &left, data, length, now);
    }
    for (int i = 0; i < n; i++)
        w->messages[i].msg_hdr.msg_controllen = sizeof w->control[i].bytes;
    pp_finish(s);
    pthread_mutex_unlock(&s->lock);
}
