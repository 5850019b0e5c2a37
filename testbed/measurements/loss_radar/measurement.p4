// LossRadar (Li, Miao, Kim, Yu, CoNEXT 2016): both ends of a link add each packet's signature, its
// flow ID and IP ID, to one cell of each row, in the epoch that the upstream marks on the packet.

#define CELLS 16384                      // of a row: for all links of a switch and both epochs

#include "include/link.p4"

control LossRadarRow(in bit<120> signature, in bit<32> cell) {
    register<bit<60>>(CELLS) xor_hi;     // in halves, as BMv2 hands out registers as 63-bit numbers
    register<bit<60>>(CELLS) xor_lo;
    register<bit<32>>(CELLS) count;
    bit<60> sum;
    bit<32> n;

    apply {
        xor_hi.read(sum, cell);
        xor_hi.write(cell, sum ^ signature[119:60]);
        xor_lo.read(sum, cell);
        xor_lo.write(cell, sum ^ signature[59:0]);
        count.read(n, cell);
        count.write(cell, n + 1);
    }
}

control LinkMeter(in headers_t hdr, in metadata_t meta, in bit<9> port, in bit<1> parity,
                  out bit<1> metered) {
    LinkCells() cells;
    LossRadarRow() row0;
    LossRadarRow() row1;
    LossRadarRow() row2;
    bit<120> signature;
    bit<32> cell0;
    bit<32> cell1;
    bit<32> cell2;

    apply {
        signature = meta.flow_id ++ hdr.ipv4.id;
        cells.apply(port, parity, 8w0 ++ signature, metered, cell0, cell1, cell2);
        if (metered == 1) {
            row0.apply(signature, cell0);
            row1.apply(signature, cell1);
            row2.apply(signature, cell2);
        }
    }
}

#include "include/link_ends.p4"
