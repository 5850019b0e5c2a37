// FlowRadar (Li, Miao, Kim, Yu, NSDI 2016): a table of all flows that cross a switch, with their
// packets. A flow that the filter has not seen adds its ID and 1 to one cell of each row; every packet
// counts in these cells. The first switch marks a packet with the parity of its epoch, in which all
// switches count it, so that their counts of a flow can be compared.

#define CELLS 4096                       // of a row, half of them for each parity
#define CELL_BITS 11                     // log2(CELLS / 2)
#define FILTER 131072                    // bits of the filter, half of them for each parity
#define FILTER_BITS 16                   // log2(FILTER / 2)

#include "include/mixed.p4"

control FlowRadarRow(in flow_id_t id, in bit<1> unseen, in bit<32> cell) {
    register<bit<52>>(CELLS) flow_hi;    // in halves, as BMv2 hands out registers as 63-bit numbers
    register<bit<52>>(CELLS) flow_lo;
    register<bit<8>>(CELLS) flows;
    register<bit<32>>(CELLS) packets;
    bit<52> sum;
    bit<8> n;
    bit<32> counted;

    apply {
        if (unseen == 1) {
            flow_hi.read(sum, cell);
            flow_hi.write(cell, sum ^ id[103:52]);
            flow_lo.read(sum, cell);
            flow_lo.write(cell, sum ^ id[51:0]);
            flows.read(n, cell);
            flows.write(cell, n + 1);
        }
        packets.read(counted, cell);
        packets.write(cell, counted + 1);
    }
}

// Ten bits of the filter (Kirsch and Mitzenmacher: two hashes make all). They come of another product,
// or the flows of one cell would share them.
#define LOOK \
    place = 15w0 ++ parity ++ at[FILTER_BITS - 1:0]; \
    filter.read(bit_, place); \
    unseen = unseen | ~bit_; \
    filter.write(place, 1); \
    at = at + step

control FlowFilter(in bit<64> mixed, in bit<1> parity, out bit<1> unseen) {
    register<bit<1>>(FILTER) filter;
    bit<1> bit_;
    bit<64> again;
    bit<32> at;
    bit<32> step;
    bit<32> place;

    apply {
        unseen = 0;
        again = (mixed ^ (mixed >> 31)) * 0x94D049BB133111EB;
        at = again[63:32];
        step = again[31:0] | 1;
        LOOK; LOOK; LOOK; LOOK; LOOK;
        LOOK; LOOK; LOOK; LOOK; LOOK;
    }
}

control Arriving(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    Mixed() hash64;
    FlowFilter() seen;
    FlowRadarRow() row0;
    FlowRadarRow() row1;
    FlowRadarRow() row2;
    bit<64> mixed;
    bit<1> parity;
    bit<1> unseen;

    apply {
        if (meta.from_host == 1) {
            hdr.shim.reserved = 4w0 ++ meta.countable ++ meta.parity;
        }
        if (hdr.shim.reserved[1:1] == 1) {
            parity = hdr.shim.reserved[0:0];
            hash64.apply(24w0 ++ meta.flow_id, mixed);
            seen.apply(mixed, parity, unseen);
            row0.apply(meta.flow_id, unseen, 20w0 ++ parity ++ mixed[63:64 - CELL_BITS]);
            row1.apply(meta.flow_id, unseen, 20w0 ++ parity ++ mixed[47:48 - CELL_BITS]);
            row2.apply(meta.flow_id, unseen, 20w0 ++ parity ++ mixed[31:32 - CELL_BITS]);
        }
    }
}

control Leaving(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply { }
}
