// The cells of meters at both ends of links, for measurements (`measurement.p4`) that define how many
// a row has, CELLS: how a switch's cells are shared by its links and the two epochs, and the cell of
// a hash in each of three rows.

#include "include/mixed.p4"

control LinkCells(in bit<9> port, in bit<1> parity, in bit<128> id, out bit<1> metered,
                  out bit<32> cell0, out bit<32> cell1, out bit<32> cell2) {
    bit<32> first;
    bit<32> width;
    Mixed() hash64;
    bit<64> mixed;

    // A port's link has `cells` of each row from `begin` on; odd epochs have the row's upper half.
    action share(bit<32> begin, bit<32> cells) {
        first = begin;
        width = cells;
        metered = 1;
    }
    table links {
        key = { port : exact; }
        actions = { share; NoAction; }
        default_action = NoAction;
        size = MAX_PORTS;
    }

    apply {
        metered = 0;
        first = 0;
        width = 0;
        cell0 = 0;
        cell1 = 0;
        cell2 = 0;
        links.apply();
        if (metered == 1) {
            hash64.apply(id, mixed);
            if (parity == 1) {
                first = first + CELLS / 2;
            }
            cell0 = first + ((16w0 ++ mixed[63:48]) * width >> 16);
            cell1 = first + ((16w0 ++ mixed[47:32]) * width >> 16);
            cell2 = first + ((16w0 ++ mixed[31:16]) * width >> 16);
        }
    }
}
