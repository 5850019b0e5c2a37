// Reports flows of a path segment that the DSM does not monitor and whose count in HashPipe exceeds
// eta (Canary, section III-D): the controller writes that as a range from eta + 1 on. Tofino's
// ranges are narrow, so with TOFINO_CHOICES the count stops at 65,535.

control HeavyHitter(inout headers_t hdr, inout metadata_t meta) {
    action report() {
        digest<heavy_hitter_t>(1, {
            hdr.ipv4.src_ip, hdr.ipv4.dst_ip, hdr.l4.src_port, hdr.l4.dst_port,
            hdr.ipv4.protocol, hdr.shim.path_bf
        });
    }
    table segments {
        key = {
            hdr.shim.path_bf    : exact;
            meta.hashpipe_count : range;
        }
        actions = { report; NoAction; }
        default_action = NoAction;
        size = HH_RULES;
    }

    apply {
#ifdef TOFINO_CHOICES
        if (meta.hashpipe_count > 0xFFFF) {
            meta.hashpipe_count = 0xFFFF;
        }
#endif
        segments.apply();
    }
}
