// Checksums, parser errors, lpm, exact, counters, const entries, hit/miss, action_run.
#include "common.p4inc"

struct headers { ethernet_t eth; ipv4_t ip; udp_t udp; }
struct metadata { bit<8> verdict; bit<16> hops; }

parser P(packet_in pkt, out headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    state start {
        pkt.extract(hdr.eth);
        transition select(hdr.eth.type) { 0x0800: ipv4; default: accept; }
    }
    state ipv4 {
        pkt.extract(hdr.ip);
        verify(hdr.ip.version == 4, error.HeaderTooShort);
        transition select(hdr.ip.frag, hdr.ip.proto) {
            (0, 17): udp;
            (0x1000 &&& 0x1000, _): accept;
            default: accept;
        }
    }
    state udp { pkt.extract(hdr.udp); transition accept; }
}
control V(inout headers hdr, inout metadata meta) {
    apply {
        verify_checksum(hdr.ip.isValid(), { hdr.ip.version, hdr.ip.ihl, hdr.ip.tos, hdr.ip.len,
            hdr.ip.id, hdr.ip.flags, hdr.ip.frag, hdr.ip.ttl, hdr.ip.proto, hdr.ip.src,
            hdr.ip.dst }, hdr.ip.csum, HashAlgorithm.csum16);
    }
}
control I(inout headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    counter(16, CounterType.packets_and_bytes) ports;
    direct_counter(CounterType.packets_and_bytes) routed;
    action drop() { mark_to_drop(sm); meta.verdict = 1; }
    action forward(bit<9> port, bit<48> mac) {
        sm.egress_spec = port;
        hdr.eth.dst = mac;
        hdr.ip.ttl = hdr.ip.ttl - 1;
        routed.count();
    }
    action mark(bit<8> v) { meta.verdict = v; }
    table routes {
        key = { hdr.ip.dst : lpm; }
        actions = { forward; drop; }
        default_action = drop();
        counters = routed;
        size = 64;
    }
    table acl {
        key = { hdr.udp.dport : exact; hdr.udp.isValid() : exact; }
        actions = { mark; NoAction; }
        const default_action = NoAction();
        const entries = { (53, true) : mark(53); (80, true) : mark(80); }
    }
    table kind {
        key = { hdr.ip.tos : exact; }
        actions = { mark; drop; NoAction; }
        default_action = NoAction();
        size = 4;
    }
    apply {
        ports.count((bit<32>)sm.ingress_port);
        if (sm.parser_error != error.NoError) {
            sm.egress_spec = 9;
            if (sm.parser_error == error.PacketTooShort) { meta.verdict = 200; }
            else { meta.verdict = 201; }
        } else if (sm.checksum_error == 1) {
            drop();
            meta.verdict = 202;
        } else if (hdr.ip.isValid()) {
            if (acl.apply().hit) { meta.hops = 1; }
            switch (kind.apply().action_run) {
                mark: { meta.hops = meta.hops + 2; }
                drop: { exit; }
                default: { }
            }
            routes.apply();
        } else {
            sm.egress_spec = 8;
        }
    }
}
control E(inout headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    apply { if (hdr.ip.isValid() && sm.parser_error == error.NoError) { hdr.ip.id = meta.hops; } }
}
control C(inout headers hdr, inout metadata meta) {
    apply {
        update_checksum(hdr.ip.isValid() && hdr.ip.version == 4, { hdr.ip.version, hdr.ip.ihl,
            hdr.ip.tos, hdr.ip.len,
            hdr.ip.id, hdr.ip.flags, hdr.ip.frag, hdr.ip.ttl, hdr.ip.proto, hdr.ip.src,
            hdr.ip.dst }, hdr.ip.csum, HashAlgorithm.csum16);
        update_checksum_with_payload(hdr.udp.isValid(), { hdr.ip.src, hdr.ip.dst, 8w0,
            hdr.ip.proto, hdr.udp.len, hdr.udp.sport, hdr.udp.dport, hdr.udp.len, 16w0 },
            hdr.udp.csum, HashAlgorithm.csum16);
    }
}
control D(packet_out pkt, in headers hdr) {
    apply { pkt.emit(hdr.eth); pkt.emit(hdr.ip); pkt.emit(hdr.udp); }
}
V1Switch(P(), V(), I(), E(), C(), D()) main;
