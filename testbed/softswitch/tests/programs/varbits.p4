// Fields of variable length: extraction, assignment, comparison, checksums and hashes over them.
#include "common.p4inc"

header op_t { bit<8> op; bit<8> bits; bit<8> more; bit<8> equal; bit<16> csum; bit<32> hashed; }
header opt_t { bit<4> a; varbit<96> v; bit<4> b; }
header tail_t { bit<16> x; varbit<64> v; }
struct headers { op_t h; opt_t o; opt_t p; tail_t t; }
struct metadata { }

parser P(packet_in pkt, out headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    state start {
        pkt.extract(hdr.h);
        pkt.extract(hdr.o, (bit<32>)hdr.h.bits);
        transition select(hdr.h.more) {
            0: accept;
            default: more;
        }
    }
    state more {
        pkt.extract(hdr.p, (bit<32>)(bit<16>)(hdr.h.more & 0x7F));
        transition select(hdr.h.more[7:7]) {
            1: tail;
            default: accept;
        }
    }
    state tail { pkt.extract(hdr.t, 32w8 * (bit<32>)hdr.o.a); transition accept; }
}
control V(inout headers hdr, inout metadata meta) { apply { } }
control I(inout headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        if (!hdr.h.isValid()) { return; }
        if (sm.parser_error == error.PacketTooShort) { hdr.h.equal = 0x81; }
        if (sm.parser_error == error.HeaderTooShort) { hdr.h.equal = 0x82; }
        if (sm.parser_error == error.ParserInvalidArgument) { hdr.h.equal = 0x84; }
        if (hdr.o.isValid() && hdr.p.isValid()) {
            if (hdr.o == hdr.p) { hdr.h.equal = 1; }
        }
        hash(hdr.h.hashed, HashAlgorithm.crc32, 32w0, { hdr.o, hdr.t.v }, 64w0x100000000);
        if (hdr.h.op == 1) {
            hdr.p = hdr.o;
        } else if (hdr.h.op == 2) {
            hdr.p.setValid();
            hdr.p.v = hdr.o.v;
            hdr.p.a = 7;
        } else if (hdr.h.op == 3) {
            hdr.o.setInvalid();
        } else if (hdr.h.op == 4) {
            hdr.o.setInvalid();
            hdr.o.setValid();
        }
    }
}
control E(inout headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    apply { hdr.h.more = (bit<8>)sm.packet_length; }
}
control C(inout headers hdr, inout metadata meta) {
    apply {
        update_checksum(hdr.t.isValid(), { hdr.h.op, hdr.o.v, hdr.t.x, hdr.t.v }, hdr.h.csum,
                        HashAlgorithm.csum16);
    }
}
control D(packet_out pkt, in headers hdr) {
    apply { pkt.emit(hdr.h); pkt.emit(hdr.o); pkt.emit(hdr.p); pkt.emit(hdr.t); }
}
V1Switch(P(), V(), I(), E(), C(), D()) main;
