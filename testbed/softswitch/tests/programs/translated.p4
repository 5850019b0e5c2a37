// A type whose values controllers see with 32 bits (P4Runtime's sdn_bitwidth), in every place of it.
#include "common.p4inc"

@p4runtime_translation("", 32)
type bit<9> port_t;
header h_t { bit<8> key; bit<8> verdict; }
@controller_header("packet_in") header in_t { port_t port; bit<7> rest; }
@controller_header("packet_out") header out_t { port_t port; bit<7> rest; }
struct headers { in_t packet_in; out_t packet_out; h_t h; }
struct metadata { port_t port; }
struct sample_t { port_t port; }

parser P(packet_in pkt, out headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    state start {
        transition select(sm.ingress_port) { 1: from_cpu; default: h; }
    }
    state from_cpu { pkt.extract(hdr.packet_out); transition h; }
    state h { pkt.extract(hdr.h); transition accept; }
}
control V(inout headers hdr, inout metadata meta) { apply { } }
control I(inout headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    register<port_t>(4) last;
    action send(port_t port) { meta.port = port; hdr.h.verdict = 1; }
    table exacts { key = { meta.port: exact; } actions = { send; NoAction; } }
    table ways { key = { meta.port: ternary; } actions = { send; NoAction; } }
    apply {
        meta.port = hdr.packet_out.port;
        if (exacts.apply().miss) { ways.apply(); }
        last.write(1, meta.port);
        digest<sample_t>(1, { meta.port });
        hdr.packet_out.setInvalid();
        hdr.packet_in.setValid();
        hdr.packet_in.port = meta.port;
        sm.egress_spec = 1;
    }
}
control E(inout headers hdr, inout metadata meta, inout standard_metadata_t sm) { apply { } }
control C(inout headers hdr, inout metadata meta) { apply { } }
control D(packet_out pkt, in headers hdr) { apply { pkt.emit(hdr.packet_in); pkt.emit(hdr.h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
