// FermatSketch (Yang et al., ChameleMon, SIGCOMM 2023) at both ends of each link: a packet adds 1 to
// the count and its flow ID, modulo a prime, to the ID sum of one cell of each row, in the epoch that
// the upstream marks on the packet. The sum has four parts of 26 bits, each modulo the least prime
// above 2^26.

#define CELLS 8192                       // of a row: for all links of a switch and both epochs

#include "include/link.p4"

#define PRIME 67108879

#define ADD(part, bits) \
    part.read(sum, cell); \
    sum = sum + (6w0 ++ bits); \
    if (sum >= PRIME) { \
        sum = sum - PRIME; \
    } \
    part.write(cell, sum)

control FermatRow(in flow_id_t id, in bit<32> cell) {
    register<bit<32>>(CELLS) count;
    register<bit<32>>(CELLS) id0;
    register<bit<32>>(CELLS) id1;
    register<bit<32>>(CELLS) id2;
    register<bit<32>>(CELLS) id3;
    bit<32> sum;

    apply {
        count.read(sum, cell);
        count.write(cell, sum + 1);
        ADD(id0, id[25:0]);
        ADD(id1, id[51:26]);
        ADD(id2, id[77:52]);
        ADD(id3, id[103:78]);
    }
}

control LinkMeter(in headers_t hdr, in metadata_t meta, in bit<9> port, in bit<1> parity,
                  out bit<1> metered) {
    LinkCells() cells;
    FermatRow() row0;
    FermatRow() row1;
    FermatRow() row2;
    bit<32> cell0;
    bit<32> cell1;
    bit<32> cell2;

    apply {
        cells.apply(port, parity, 24w0 ++ meta.flow_id, metered, cell0, cell1, cell2);
        if (metered == 1) {
            row0.apply(meta.flow_id, cell0);
            row1.apply(meta.flow_id, cell1);
            row2.apply(meta.flow_id, cell2);
        }
    }
}

#include "include/link_ends.p4"
