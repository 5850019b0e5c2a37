// Reports flows of a path segment that the DSM does not monitor and whose count in HashPipe exceeds
// eta (Canary, section III-D): the controller writes that as a range from eta + 1 on. TNA's ranges
// are narrow, so the count stops at 65,535.

control HeavyHitter(inout headers_t hdr, inout metadata_t meta,
                    inout ingress_intrinsic_metadata_for_deparser_t deparser) {
    action report() {
        deparser.digest_type = 1;
        meta.reported_bf = hdr.shim.path_bf;
    }
    table segments {
        key = {
            hdr.shim.path_bf    : exact;
            meta.hashpipe_count : range;
        }
        actions = { report; NoAction; }
        default_action = NoAction;
        size = HH_RULES;
    }

    apply {
        segments.apply();
    }
}
