// TTL, and what the switch answers with ICMP itself, at no more than T_max messages a second:
// time-exceeded to TCP, UDP and echo requests that expire, and echo requests to its own address.

control Expiry(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    register<bit<32>>(1) icmp_window;    // {window:24, messages in it:8}
    bit<32> state;
    bit<24> window;
    bit<17> sum;
    bit<1> pinged;
    bit<1> answerable;

    action answer_as_switch() {
        hdr.ipv4.ttl = 64;
        hdr.ipv4.src_ip = meta.own_ip;
        meta.flow_valid = 0;
        meta.countable = 0;
        meta.verdict = 8w0 ++ 1w1 ++ 7w0;
    }
    action time_exceeded() {
        hdr.icmp.setValid();
        hdr.icmp.type = ICMP_TIME_EXCEEDED;
        hdr.icmp.code = 0;
        hdr.icmp.checksum = 0;
        hdr.icmp.unused = 0;
        hdr.inner_ipv4.setValid();
        hdr.inner_ipv4 = hdr.ipv4;
        hdr.ipv4.tos = 0;
        hdr.ipv4.total_length = 56;
        hdr.ipv4.id = 0;
        hdr.ipv4.flags = 0;
        hdr.ipv4.protocol = PROTOCOL_ICMP;
        hdr.ipv4.dst_ip = hdr.inner_ipv4.src_ip;
        answer_as_switch();
        truncate(14 + 7 + 56);
    }
    action echo_reply() {                // the sum changes by the type and code alone (RFC 1624)
        sum = (bit<17>)hdr.echo.checksum + (bit<17>)(hdr.echo.type ++ hdr.echo.code);
        hdr.echo.type = ICMP_ECHO_REPLY;
        hdr.echo.code = 0;
        hdr.echo.checksum = sum[15:0] + (15w0 ++ sum[16:16]);
        hdr.ipv4.dst_ip = hdr.ipv4.src_ip;
        answer_as_switch();
    }

    apply {
        pinged = 0;
        if (hdr.echo.isValid() && hdr.ipv4.dst_ip == meta.own_ip) {
            pinged = 1;
        }
        if (hdr.ipv4.ttl > 1 && pinged == 0) {
            hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
            if (hdr.ipv4.ihl != 5) {     // options are not parsed: update the sum (RFC 1141)
                sum = (bit<17>)hdr.ipv4.checksum + 0x100;
                hdr.ipv4.checksum = sum[15:0] + (15w0 ++ sum[16:16]);
            }
        } else {
            meta.expired = 1;
            answerable = meta.flow_valid;
            if (hdr.echo.isValid()) {
                answerable = 1;
            }
            window = std.ingress_global_timestamp[ICMP_WINDOW_SHIFT + 23:ICMP_WINDOW_SHIFT];
            icmp_window.read(state, 0);
            if (state[31:8] != window) {
                state = window ++ 8w0;
            }
            if (answerable == 1 && state[7:0] < ICMP_PER_WINDOW) {
                icmp_window.write(0, state + 1);
                if (pinged == 1) {
                    echo_reply();
                } else {
                    time_exceeded();
                }
            } else {
                DROP(meta, hdr, std, CAUSE_TTL);
            }
        }
    }
}
