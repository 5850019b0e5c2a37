// A counter for each port and bucket of the flow hash, of packets that leave and of those that
// arrive. What was counted is marked: hosts' and switches' own packets arrive without a mark.

control Count(in metadata_t meta, in bit<9> port) {
    counter(MAX_PORTS * 16, CounterType.packets) buckets;

    apply {
        buckets.count(19w0 ++ port ++ meta.flow_hash[3:0]);
    }
}

control Leaving(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    Count() count;

    apply {
        if (hdr.shim.isValid() && meta.countable == 1) {
            count.apply(meta, std.egress_port);
            hdr.shim.reserved = 1;
        }
    }
}

control Arriving(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    Count() count;

    apply {
        if (hdr.shim.reserved == 1) {
            count.apply(meta, std.ingress_port);
        }
        hdr.shim.reserved = 0;
    }
}
