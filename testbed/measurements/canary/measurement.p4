// Canary's meters in a host (MONITORS=...+host; its section III-A: "placing meters at end-hosts").
//
// The program of a host's adapter is that of the switches with two other control blocks: it forwards
// between the host and the one link to its ToR, and it leaves the TTL alone, as it is no hop of its
// own. What the host sends gets the shim and is counted by the USM. What comes from the ToR still has
// the shim, is counted by the DSM and loses it.

#define TO_HOST 1                        // ports of the adapter
#define TO_TOR 2

control Adapter(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        if (meta.from_host == 1) {
            std.egress_spec = TO_TOR;
        } else {
            meta.to_host = 1;
            std.egress_spec = TO_HOST;
        }
    }
}
#define Routing Adapter

control NoHop(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply { }
}
#define Expiry NoHop

control Arriving(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply { }
}

control Leaving(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply { }
}
