// Registers of many widths, hashes, random numbers, timestamps.
#include "common.p4inc"

header op_t { bit<8> op; bit<32> index; bit<104> wide; bit<64> value; bit<16> base; bit<32> max; }
header out_t {
    bit<32> crc32v; bit<16> crc16v; bit<16> csum; bit<16> xor; bit<64> ident; bit<32> bounded;
    bit<48> now; bit<8> nibble;
}
struct headers { op_t h; out_t o; }
struct metadata { bit<4> nibble; bit<1> flag; }

parser P(packet_in pkt, out headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    state start { pkt.extract(hdr.h); transition accept; }
}
control V(inout headers hdr, inout metadata meta) { apply { } }
control I(inout headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    register<bit<1>>(8) bits;
    register<bit<13>>(8) r13;
    register<bit<32>>(8) r32;
    register<bit<64>>(8) r64;
    register<bit<104>>(8) r104;
    register<bit<128>>(8) r128;
    apply {
        sm.egress_spec = 1;
        if (hdr.h.op == 0) {
            bits.write(hdr.h.index, (bit<1>)hdr.h.value);
            r13.write(hdr.h.index, (bit<13>)hdr.h.value);
            r32.write(hdr.h.index, (bit<32>)hdr.h.value);
            r64.write(hdr.h.index, hdr.h.value);
            r104.write(hdr.h.index, hdr.h.wide);
            r128.write(hdr.h.index, hdr.h.value ++ hdr.h.value);
        } else if (hdr.h.op == 1) {
            r104.read(hdr.h.wide, hdr.h.index);
            r64.read(hdr.h.value, hdr.h.index);
        } else if (hdr.h.op == 2) {
            hdr.o.setValid();
            meta.nibble = hdr.h.value[3:0];
            hash(hdr.o.crc32v, HashAlgorithm.crc32, 32w0, { hdr.h.wide, hdr.h.value }, 64w0x100000000);
            hash(hdr.o.crc16v, HashAlgorithm.crc16, 16w0, { hdr.h.wide, hdr.h.value }, 32w0x10000);
            hash(hdr.o.csum, HashAlgorithm.csum16, 16w0, { hdr.h.wide, hdr.h.value }, 32w0x10000);
            hash(hdr.o.xor, HashAlgorithm.xor16, 16w0, { hdr.h.wide, hdr.h.value }, 32w0x10000);
            hash(hdr.o.ident, HashAlgorithm.identity, 64w0, { hdr.h.value }, 64w0xFFFFFFFFFFFFFFFF);
            hash(hdr.o.bounded, HashAlgorithm.crc32, hdr.h.base, { hdr.h.value, meta.nibble }, hdr.h.max);
            hdr.o.now = sm.ingress_global_timestamp;
        } else if (hdr.h.op == 3) {
            random(hdr.h.value, 64w0, hdr.h.value);
            random(hdr.h.base, 16w10, 16w19);
        }
    }
}
control E(inout headers hdr, inout metadata meta, inout standard_metadata_t sm) { apply { } }
control C(inout headers hdr, inout metadata meta) { apply { } }
control D(packet_out pkt, in headers hdr) { apply { pkt.emit(hdr.h); pkt.emit(hdr.o); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
