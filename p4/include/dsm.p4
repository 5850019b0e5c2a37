// The downstream meter: counts what arrived of the selected flows, with the pathBF they carried
// (Canary, section III-C and algorithm 1). A packet that its upstream counted and that no rule
// expects here is of a flow that left its path segment: it makes its buckets dirty. Flow IDs lie in
// two halves, because BMv2 hands out registers as 63-bit numbers.

control DsmRow(in metadata_t meta, in path_bf_t path_bf, in bit<32> bucket) {
    register<bit<1>>(METER_BUCKETS) dirty;
    register<bit<52>>(METER_BUCKETS) flow_hi;
    register<bit<52>>(METER_BUCKETS) flow_lo;
    register<path_bf_t>(METER_BUCKETS) path_bfs;
    register<bit<32>>(METER_BUCKETS) count;
    bit<32> n;
    bit<52> owner_hi;
    bit<52> owner_lo;
    path_bf_t owner_bf;

    apply {
        count.read(n, bucket);
        flow_hi.read(owner_hi, bucket);
        flow_lo.read(owner_lo, bucket);
        path_bfs.read(owner_bf, bucket);
        if (n == 0) {
            flow_hi.write(bucket, meta.flow_id[103:52]);
            flow_lo.write(bucket, meta.flow_id[51:0]);
            path_bfs.write(bucket, path_bf);
        }
        if (meta.monitored == 0
                || n != 0 && (owner_hi ++ owner_lo != meta.flow_id || owner_bf != path_bf)) {
            dirty.write(bucket, 1);
        }
        count.write(bucket, n + 1);
    }
}

control Dsm(inout headers_t hdr, inout metadata_t meta) {
    DsmRow() row0;
    DsmRow() row1;
    DsmRow() row2;
    direct_counter(CounterType.packets) matched;

    action monitor() {
        meta.monitored = 1;
        matched.count();
    }
    action skip() {
        matched.count();
    }
    table rules {
        key = {
            meta.flow_id     : exact;
            hdr.shim.path_bf : exact;
        }
        actions = { monitor; skip; }
        default_action = skip;
        counters = matched;
        size = DSM_RULES;
    }

    apply {
        rules.apply();
        // The packet's own parity, never this switch's clock, chooses the instance.
        if (hdr.shim.counted == 1) {
            row0.apply(meta, hdr.shim.path_bf, 21w0 ++ hdr.shim.parity ++ meta.flow_hash[9:0]);
            row1.apply(meta, hdr.shim.path_bf, 21w0 ++ hdr.shim.parity ++ meta.flow_hash[19:10]);
            row2.apply(meta, hdr.shim.path_bf, 21w0 ++ hdr.shim.parity ++ meta.flow_hash[29:20]);
        }
    }
}
