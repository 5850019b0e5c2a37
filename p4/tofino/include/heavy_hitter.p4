// Reports flows of a path segment that the DSM does not monitor and whose count in HashPipe exceeds
// eta (Canary, section III-D): the controller writes that as a range from eta + 1 on. TNA's ranges
// are narrow, so the count stops at 65,535. The key is a copy of pathBF: what encodes this switch into
// the field itself need not wait for HashPipe.

control HeavyHitter(inout metadata_t meta,
                    inout ingress_intrinsic_metadata_for_deparser_t deparser) {
    action report() {
        deparser.digest_type = 1;
    }
    table segments {
        key = {
            meta.reported_bf    : exact @name("hdr.shim.path_bf");
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
