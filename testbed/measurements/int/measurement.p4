// INT: each packet carries the path that it took. A path goes up and then down, and only the way up
// is chosen: a switch notes in the six reserved bits of the shim which uplink the packet takes. The
// ToR that delivers it keeps a report of each flow and path, which the controller reads.

#define CELLS 8192                       // reports of a row

control ReportRow(in bit<112> report, in bit<32> cell, inout bit<1> kept) {
    register<bit<56>>(CELLS) hi;         // in halves, as BMv2 hands out registers as 63-bit numbers
    register<bit<56>>(CELLS) lo;
    bit<56> upper;
    bit<56> lower;

    apply {
        hi.read(upper, cell);
        lo.read(lower, cell);
        if (upper == 0 && lower == 0) {
            hi.write(cell, report[111:56]);
            lo.write(cell, report[55:0]);
            kept = 1;
        } else if (upper == report[111:56] && lower == report[55:0]) {
            kept = 1;
        }
    }
}

control Arriving(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    ReportRow() row0;
    ReportRow() row1;
    bit<112> report;
    bit<1> kept;

    table racks {                        // the addresses of this ToR's hosts
        key = { hdr.ipv4.dst_ip : lpm; }
        actions = { NoAction; }
        default_action = NoAction;
        size = ROUTES;
    }

    apply {
        if (meta.from_host == 0 && meta.countable == 1) {
            if (racks.apply().hit) {
                report = meta.flow_id ++ 2w0 ++ hdr.shim.reserved;
                kept = 0;
                row0.apply(report, 19w0 ++ meta.flow_hash[12:0], kept);
                if (kept == 0) {
                    row1.apply(report, 19w0 ++ meta.flow_hash[25:13], kept);
                }
            }
        }
    }
}

control Leaving(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action choose(bit<6> bits) {
        hdr.shim.reserved = hdr.shim.reserved | bits;
    }
    table uplinks {
        key = { std.egress_port : exact; }
        actions = { choose; NoAction; }
        default_action = NoAction;
        size = MAX_PORTS;
    }

    apply {
        if (hdr.shim.isValid()) {
            uplinks.apply();
        }
    }
}
