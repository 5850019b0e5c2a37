// The downstream meter: counts what arrived of the selected flows, with the pathBF they carried
// (Canary, section III-C and algorithm 1).

control DsmRow(in metadata_t meta, in path_bf_t path_bf, in bit<32> bucket) {
    register<bit<1>>(METER_BUCKETS) dirty;
    register<flow_id_t>(METER_BUCKETS) flow_id;
    register<path_bf_t>(METER_BUCKETS) path_bfs;
    register<bit<32>>(METER_BUCKETS) count;
    bit<32> n;
    flow_id_t owner;
    path_bf_t owner_bf;

    apply {
        count.read(n, bucket);
        flow_id.read(owner, bucket);
        path_bfs.read(owner_bf, bucket);
        if (n == 0) {
            flow_id.write(bucket, meta.flow_id);
            path_bfs.write(bucket, path_bf);
        } else if (owner != meta.flow_id || owner_bf != path_bf) {
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
        if (meta.monitored == 1 && hdr.shim.counted == 1) {
            row0.apply(meta, hdr.shim.path_bf, 21w0 ++ hdr.shim.parity ++ meta.flow_hash[9:0]);
            row1.apply(meta, hdr.shim.path_bf, 21w0 ++ hdr.shim.parity ++ meta.flow_hash[19:10]);
            row2.apply(meta, hdr.shim.path_bf, 21w0 ++ hdr.shim.parity ++ meta.flow_hash[29:20]);
        }
    }
}
