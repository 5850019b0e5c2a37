// A meter at each end of a link, `LinkMeter`: the upstream counts what may be counted and marks it, in
// the two lowest reserved bits of the shim, as counted and with its epoch's parity. The downstream
// counts what is marked, in the packet's own epoch, and removes the mark.

control Leaving(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    LinkMeter() meter;
    bit<1> metered;

    apply {
        if (hdr.shim.isValid() && meta.countable == 1) {
            meter.apply(hdr, meta, std.egress_port, meta.parity, metered);
            hdr.shim.reserved = 4w0 ++ metered ++ meta.parity;
        }
    }
}

control Arriving(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    LinkMeter() meter;
    bit<1> metered;

    apply {
        if (hdr.shim.reserved[1:1] == 1) {
            meter.apply(hdr, meta, std.ingress_port, hdr.shim.reserved[0:0], metered);
        }
        hdr.shim.reserved = 0;
    }
}
