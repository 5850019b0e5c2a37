// TTL. What expires goes to the switch's CPU, which answers with ICMP time-exceeded, at no more than
// T_max packets a second: TNA cannot cut a packet down to what an answer may quote.

struct window_t {
    bit<32> window;
    bit<32> messages;
}

control Expiry(inout headers_t hdr, inout metadata_t meta,
               in ingress_intrinsic_metadata_from_parser_t from_parser,
               inout ingress_intrinsic_metadata_for_deparser_t deparser,
               inout ingress_intrinsic_metadata_for_tm_t tm) {
    Register<window_t, bit<1>>(1, {0, 0}) icmp_window;
    bit<1> late;
    bit<32> now;

    RegisterAction<window_t, bit<1>, bit<1>>(icmp_window) admit = {
        void apply(inout window_t value, out bit<1> too_many) {
            too_many = 0;
            if (value.window == now && value.messages >= ICMP_PER_WINDOW) {
                too_many = 1;
            }
            if (value.window != now) {
                value.messages = 1;
            } else if (value.messages < ICMP_PER_WINDOW) {
                value.messages = value.messages + 1;
            }
            value.window = now;
        }
    };

    apply {
        late = 0;
        now = (bit<32>)from_parser.global_tstamp[47:ICMP_WINDOW_SHIFT_NS];
        // RFC 1624 of a TTL less by one: add 0x100, with the carry at the low end.
        if (hdr.ipv4.ttl > 1 && (hdr.ipv4.checksum[15:8] == 0xFF || hdr.ipv4.checksum == 0xFEFF)) {
            hdr.ipv4.checksum = hdr.ipv4.checksum + 0x101;
        } else if (hdr.ipv4.ttl > 1) {
            hdr.ipv4.checksum = hdr.ipv4.checksum + 0x100;
        }
        if (hdr.ipv4.ttl > 1) {
            hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        } else {
            meta.ended = 1;
        }
        if (meta.ended == 1 && meta.flow_valid == 1) {
            late = admit.execute(0);
        }
        if (meta.ended == 1 && meta.flow_valid == 1 && late == 0) {
            tm.ucast_egress_port = CPU_PORT;
            tm.bypass_egress = 1;
        } else if (meta.ended == 1) {
            deparser.drop_ctl = 1;
        }
    }
}
