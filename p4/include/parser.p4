// Parser and deparser.

parser CanaryParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_SHIM: parse_shim;
            ETHERTYPE_IPV4: parse_ipv4;
            default: accept;
        }
    }
    state parse_shim {
        packet.extract(hdr.shim);
        transition select(hdr.shim.ether_type) {
            ETHERTYPE_IPV4: parse_ipv4;
            default: accept;
        }
    }
    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.ihl, hdr.ipv4.fragment, hdr.ipv4.protocol) {
            (5, 0, PROTOCOL_TCP): parse_l4;
            (5, 0, PROTOCOL_UDP): parse_l4;
            (5, 0, PROTOCOL_ICMP): parse_icmp;
            (5, 0, PROTOCOL_IPIP): parse_inner_ipv4;
            default: accept;
        }
    }
    state parse_icmp {                   // only requests are answered: no error tells of an error
        transition select(packet.lookahead<bit<8>>()) {
            ICMP_ECHO_REQUEST: parse_echo;
            default: accept;
        }
    }
    state parse_echo {
        packet.extract(hdr.echo);
        transition accept;
    }
    state parse_inner_ipv4 {
        packet.extract(hdr.inner_ipv4);
        transition select(hdr.inner_ipv4.ihl, hdr.inner_ipv4.fragment, hdr.inner_ipv4.protocol) {
            (5, 0, PROTOCOL_TCP): parse_l4;
            (5, 0, PROTOCOL_UDP): parse_l4;
            default: accept;
        }
    }
    state parse_l4 {
        packet.extract(hdr.l4);
        transition accept;
    }
}

control CanaryDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.shim);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.icmp);
        packet.emit(hdr.inner_ipv4);
        packet.emit(hdr.l4);
        packet.emit(hdr.echo);
    }
}
