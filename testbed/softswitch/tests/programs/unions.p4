// Header unions, and a stack of them: options as in TCP, of kind, length and value.
#include "common.p4inc"

header op_t { bit<8> op; bit<8> seen; bit<8> count; bit<8> last; }
header kind_t { bit<8> kind; }
header nop_t { bit<8> kind; }
header size_t { bit<8> kind; bit<8> len; bit<16> value; }
header scale_t { bit<8> kind; bit<8> len; bit<8> value; }
header_union option_t { nop_t nop; size_t size; scale_t scale; }
header word_t { bit<32> x; }
header byte_t { bit<8> x; }
header_union either_t { word_t word; byte_t single; }
struct headers { op_t h; option_t[4] options; either_t a; either_t b; }
struct metadata { }

parser P(packet_in pkt, out headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    state start {
        pkt.extract(hdr.h);
        transition options;
    }
    state options {
        transition select(pkt.lookahead<kind_t>().kind) {
            0: tail;
            1: nop;
            2: size;
            3: scale;
            default: accept;
        }
    }
    state nop { pkt.extract(hdr.options.next.nop); transition options; }
    state size { pkt.extract(hdr.options.next.size); transition options; }
    state scale { pkt.extract(hdr.options.next.scale); transition options; }
    state tail {
        pkt.extract(hdr.a.single);
        transition select(pkt.lookahead<kind_t>().kind) {
            1: word;
            default: accept;
        }
    }
    state word { pkt.extract(hdr.b.word); transition accept; }
}
control V(inout headers hdr, inout metadata meta) { apply { } }
control I(inout headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        if (!hdr.h.isValid()) { return; }
        if (hdr.options[0].nop.isValid()) { hdr.h.seen = hdr.h.seen | 1; }
        if (hdr.options[0].size.isValid()) { hdr.h.seen = hdr.h.seen | 2; }
        if (hdr.options[1].nop.isValid()) { hdr.h.seen = hdr.h.seen | 4; }
        if (hdr.options[1].scale.isValid()) { hdr.h.last = hdr.options[1].scale.value; }
        if (hdr.a.isValid()) { hdr.h.seen = hdr.h.seen | 8; }
        if (hdr.b.isValid()) { hdr.h.seen = hdr.h.seen | 16; }
        if (hdr.h.op == 1) {
            hdr.options[0].size.setValid(); // what was valid there is so no longer
            hdr.options[0].size.kind = 2;
            hdr.options[0].size.value = 0xBEEF;
        } else if (hdr.h.op == 2) {
            hdr.a = hdr.b;
        } else if (hdr.h.op == 3) {
            hdr.a.word.setValid();
            hdr.a.word.x = 0xCAFE;
            hdr.b.word.setInvalid();
        } else if (hdr.h.op == 4) {
            hdr.options[1] = hdr.options[0];
        } else if (hdr.h.op == 5) {
            hdr.options[2].scale.setInvalid();
            hdr.options[3].nop.setValid();
            hdr.options[3].nop.kind = 1;
        } else if (hdr.h.op == 6) {
            hdr.b.single.setValid();
            hdr.b.single = hdr.a.single;
        }
    }
}
control E(inout headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    apply { hdr.h.count = (bit<8>)sm.packet_length; }
}
control C(inout headers hdr, inout metadata meta) { apply { } }
control D(packet_out pkt, in headers hdr) {
    apply {
        pkt.emit(hdr.h);
        pkt.emit(hdr.options);
        pkt.emit(hdr.a);
        pkt.emit(hdr.b);
    }
}
V1Switch(P(), V(), I(), E(), C(), D()) main;
